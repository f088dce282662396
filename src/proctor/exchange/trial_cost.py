"""Tokens and money of a harbor trial, from the account that it left."""

from datetime import datetime

from proctor.exchange.trial_sources import Sources
from proctor.harbor import spending
from proctor.harbor.account import AgentResultAccount, TrialAccount
from proctor.harbor.spending import Reported
from proctor.record.cost import CostBasis, CostRecord


def make_trial_cost(
    sources: Sources, model: str, when: datetime, notes: list[str]
) -> tuple[CostRecord | None, CostBasis]:
    """Tokens and money, and where the amount comes from."""
    account = sources.account
    reported = Reported(tuple(_find_agent_results(account)), _find_silent_step(account))
    return spending.make_trial_cost(reported, sources.evidence.trace, model, when, notes)


def _find_agent_results(account: TrialAccount | None) -> list[AgentResultAccount]:
    """What the agent reported, a step that reported nothing among those that did as unknown."""
    if account is None:
        return []
    if account.agent_result is not None:  # which is for all steps
        return [account.agent_result]
    results = [step.agent_result for step in account.step_results or ()]
    return [result or AgentResultAccount() for result in results] if any(results) else []


def _find_silent_step(account: TrialAccount | None) -> str | None:
    if account is None or account.agent_result is not None:
        return None
    steps = account.step_results or []
    silent = [step.step_name for step in steps if step.agent_result is None]
    return silent[0] if silent and len(silent) < len(steps) else None
