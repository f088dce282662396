"""Outputs and evaluation of a harbor trial. Scores are the scoring unit's."""

from typing import Final

import msgspec

from proctor.exchange.trial_sources import Sources
from proctor.harbor.account import TrialAccount
from proctor.harbor.documents import ExceptionDocument
from proctor.harbor.evaluation import Status, find_status, render_error
from proctor.harbor.evaluation import make_evaluation as evaluate
from proctor.record.model import AgentOutput, EvaluationResult, OutputRecord
from proctor.reward.score import Unscored
from proctor.traces.entry import TraceKind

KILLED: Final = "the trial was killed before it wrote a result"


def make_outputs(sources: Sources) -> OutputRecord:
    """What the agent left, with paths relative to the trial."""
    account, trace = sources.account, sources.evidence.trace
    path = trace.path.removeprefix(f"{sources.directory}/") if trace else None
    spoken = trace is not None and trace.kind is TraceKind.CONVERSATION
    result = account.agent_result if account else None
    left = any(path.startswith("artifacts/") for path in sources.evidence.files)
    return OutputRecord(
        agent_output=AgentOutput(
            status=_find_status(account),
            output_path="artifacts" if left else "agent",
            output_format="directory",
            error_message=_find_agent_error(account),
        ),
        conversation_path=path if spoken else None,
        trajectory_path=None if spoken else path,
        agent_result=msgspec.to_builtins(result) if result else None,
    )


def _find_status(account: TrialAccount | None) -> Status:
    if account is None:
        return "failed"
    return find_status(account.exception_info, was_verified=account.verifier is not None)


def _find_agent_error(account: TrialAccount | None) -> str | None:
    if account is None:
        return KILLED
    failed = _find_status(account) != "completed"
    return render_error(account.exception_info) if account.exception_info and failed else None


def make_evaluation(sources: Sources, notes: list[str]) -> EvaluationResult:
    """What the trial scored; null where it did not."""
    found = sources.found
    rewards = found.trial.verdict.rewards if found and found.trial.verdict else None
    if found and not found.follows:
        notes.append("result.json claims other rewards than the reward files give; theirs count")
    exceptions = _find_exceptions(sources.account)
    further = [] if found or exceptions else [KILLED]
    if found and isinstance(found.evidence, Unscored) and not exceptions:
        further.append(found.evidence.reason)
    return evaluate(rewards, exceptions, further, notes)


def _find_exceptions(account: TrialAccount | None) -> list[ExceptionDocument]:
    if account is None:
        return []
    steps = [step.exception_info for step in account.step_results or ()]
    return [error for error in (account.exception_info, *steps) if error is not None]
