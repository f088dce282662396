"""Outputs and evaluation of a harbor trial. Scores are the scoring unit's."""

import math
from typing import Final, Literal

import msgspec

from proctor.harbor.account import TrialAccount
from proctor.harbor.documents import ExceptionDocument
from proctor.importers.trial_sources import Sources
from proctor.outcome.reasons import reason_for_exception
from proctor.record.model import (
    AgentOutput,
    ErrorTag,
    EvaluationResult,
    OutputRecord,
    ValidityCheck,
)
from proctor.reward.number import Number, Rewards
from proctor.reward.score import Unscored
from proctor.trajectory.entry import Object
from proctor.trajectory.trace import TraceKind

type _Status = Literal["completed", "partial", "failed"]

KILLED: Final = "the trial was killed before it wrote a result"
_CUT_SHORT: Final = frozenset({"AgentTimeoutError", "CancelledError"})
_LONGEST_MESSAGE: Final = 2000


def make_outputs(sources: Sources) -> OutputRecord:
    """What the agent left, with paths relative to the trial."""
    account, trace = sources.account, sources.evidence.trace
    path = trace.path.removeprefix(f"{sources.directory}/") if trace else None
    spoken = trace is not None and trace.kind is TraceKind.CONVERSATION
    result = account.agent_result if account else None
    left = any(file.path.startswith("artifacts/") for file in sources.evidence.files)
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


def _find_status(account: TrialAccount | None) -> _Status:
    if account is None:
        return "failed"
    error = account.exception_info
    if error is None or (account.verifier is not None and not _is_agents(error)):
        return "completed"
    return "partial" if error.exception_type in _CUT_SHORT else "failed"


def _is_agents(error: ExceptionDocument) -> bool:
    """Whether an exception ended the agent's work although verification went on."""
    return error.exception_type in (*_CUT_SHORT, "NonZeroAgentExitCodeError")


def _find_agent_error(account: TrialAccount | None) -> str | None:
    if account is None:
        return KILLED
    failed = _find_status(account) != "completed"
    return _render(account.exception_info) if account.exception_info and failed else None


def _render(error: ExceptionDocument) -> str:
    text = f"{error.exception_type}: {error.exception_message}".rstrip(": ")
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def make_evaluation(sources: Sources, notes: list[str]) -> EvaluationResult:
    """What the trial scored; null where it did not."""
    found = sources.found
    rewards = found.trial.verdict.rewards if found and found.trial.verdict else None
    if found and not found.follows:
        notes.append("result.json claims other rewards than the reward files give; theirs count")
    exceptions = _find_exceptions(sources.account)
    errors = [_render(error) for error in exceptions] or ([] if found else [KILLED])
    if found and isinstance(found.evidence, Unscored) and not exceptions:
        errors.append(found.evidence.reason)
    return EvaluationResult(
        reward=_find_reward(rewards, notes),
        validity=ValidityCheck(
            output_parseable=rewards is not None,
            schema_valid=rewards is not None,
            verifier_completed=rewards is not None,
            errors=tuple(errors),
        ),
        breakdown=_render_rewards(rewards),
        error_taxonomy=tuple(_tag(error) for error in exceptions) or None,
    )


def _find_exceptions(account: TrialAccount | None) -> list[ExceptionDocument]:
    if account is None:
        return []
    steps = [step.exception_info for step in account.step_results or ()]
    return [error for error in (account.exception_info, *steps) if error is not None]


def _tag(error: ExceptionDocument) -> ErrorTag:
    code = reason_for_exception(error.exception_type)
    return ErrorTag(
        category=str(code or error.exception_type or "unknown"),
        description=_render(error),
        source="mechanical",
    )


def _find_reward(rewards: Rewards | None, notes: list[str]) -> float | None:
    """The one reward there is, or the one of several that is called so."""
    if not rewards:
        return None
    if "reward" not in rewards and len(rewards) > 1:
        notes.append("several rewards and none is called `reward`; the record's reward is null")
        return None
    reward = rewards["reward"] if "reward" in rewards else next(iter(rewards.values()))
    if not _is_float(reward):
        notes.append(f"the reward is {reward!r}; the record's reward is null")
        return None
    return float(reward)


def _render_rewards(rewards: Rewards | None) -> Object | None:
    if rewards is None:
        return None
    # A record holds no nan and no infinity; their names say what was there.
    return {key: value if _is_float(value) else repr(value) for key, value in rewards.items()}


def _is_float(value: Number) -> bool:
    """Whether a record can hold it: not nan, not infinite, and not an int beyond all floats."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
