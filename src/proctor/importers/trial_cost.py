"""Tokens and money of a harbor trial. Prices are the record unit's."""

import math
from collections.abc import Iterable
from datetime import datetime

import msgspec

from proctor.errors import RecordError
from proctor.harbor.account import AgentResultAccount, TrialAccount
from proctor.importers.trial_inputs import NO_MODEL, find_models_reported
from proctor.importers.trial_sources import Sources
from proctor.record.cost import (
    CostBasis,
    CostRecord,
    Spending,
    find_cost,
    make_cost,
    unknown_cost,
)
from proctor.record.usage import Usage, sum_usage
from proctor.trajectory.entry import Entry, Object
from proctor.trajectory.trace import TraceKind


def make_trial_cost(
    sources: Sources, model: str, when: datetime, notes: list[str]
) -> tuple[CostRecord | None, CostBasis]:
    """Tokens and money, and where the amount comes from."""
    results = _find_agent_results(sources.account)
    try:
        advisor_calls, advisor = _find_advisor(sources)
        usage = sum_usage([_usage(result) for result in results]) if results else Usage()
        spendings = [Spending(usages=(usage,), model=None if model == NO_MODEL else model)]
        if advisor is not None:
            spendings.append(Spending(usages=(advisor,), model=None, who="advisor"))
        basis = _find_basis(sources, find_cost(spendings, when, reported_usd=_sum_usd(results)))
    except RecordError as error:
        notes.append(f"the trial's figures cannot be: {error}; cost is null")
        return None, unknown_cost(str(error))
    notes += [f"cost: {note}" for note in basis.notes]
    if usage == Usage() and basis.amount_usd is None and not advisor_calls:
        return None, basis
    return make_cost(usage, basis, advisor=advisor, advisor_calls=advisor_calls), basis


def _find_basis(sources: Sources, basis: CostBasis) -> CostBasis:
    """The basis, unknown where the trial itself says why it must be."""
    if basis.kind == "estimated" and len(find_models_reported(sources)) > 1:
        return unknown_cost("several models answered, and their tokens are not told apart")
    silent = _find_silent_step(sources.account)
    if basis.kind == "unknown" and silent is not None:
        return unknown_cost(f"step {silent} says neither tokens nor cost, others do")
    return basis


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


def _usage(result: AgentResultAccount) -> Usage:
    return Usage.from_harbor(
        n_input_tokens=result.n_input_tokens,
        n_cache_tokens=result.n_cache_tokens,
        n_output_tokens=result.n_output_tokens,
    )


def _sum_usd(results: Iterable[AgentResultAccount]) -> float | None:
    amounts = [result.cost_usd for result in results]
    known = [amount for amount in amounts if amount is not None]
    if not known or len(known) < len(amounts):
        return None
    try:
        return math.fsum(known)
    except OverflowError as error:
        raise RecordError("reported costs add up to more than a number can hold") from error


class _AdvisorTokens(msgspec.Struct, frozen=True):
    """What a harness says in an entry's metadata about one question to an advisor."""

    input: int | None = None
    output: int | None = None


def _find_advisor(sources: Sources) -> tuple[int | None, Usage | None]:
    """How often an advisor was asked, and its tokens; None where no trace can tell."""
    trace = sources.evidence.trace
    if trace is None or trace.kind is not TraceKind.TRAJECTORY:
        return None, None
    marked = [entry for entry in trace.entries if (entry.metadata or {}).get("advisor") is True]
    # A call and its result are one question, and both may be marked.
    asked = [entry for entry in marked if entry.role == "tool_result"] or marked
    if not asked:
        return 0, None
    return len(asked), sum_usage([_advisor_usage(entry) for entry in asked])


def _advisor_usage(entry: Entry) -> Usage:
    metadata: Object = entry.metadata or {}
    try:
        tokens = msgspec.convert(metadata.get("advisor_tokens"), _AdvisorTokens)
    except msgspec.ValidationError:
        return Usage()  # it was asked all the same
    return Usage(input=tokens.input, output=tokens.output)
