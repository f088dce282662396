"""What a harbor trial came to, in a record's words: status, errors, reward and its breakdown.

Whoever makes a record of a trial, while it runs or from what it left, says it with these. Scores
are the scoring unit's; nothing here reads a file.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal

from proctor.harbor.documents import ExceptionDocument
from proctor.record.fields import Object
from proctor.record.model import ErrorTag, EvaluationResult, ValidityCheck
from proctor.record.reasons import reason_for_exception
from proctor.reward.number import Number, Rewards, find_primary

type Status = Literal["completed", "partial", "failed"]

_CUT_SHORT: Final = frozenset({"AgentTimeoutError", "CancelledError"})
_LONGEST_MESSAGE: Final = 2000


def find_status(error: ExceptionDocument | None, *, was_verified: bool) -> Status:
    """How the agent's own work ended, from the trial's exception."""
    if error is None or (was_verified and not _is_agents(error)):
        return "completed"
    return "partial" if error.exception_type in _CUT_SHORT else "failed"


def _is_agents(error: ExceptionDocument) -> bool:
    """Whether an exception ended the agent's work although verification went on."""
    return error.exception_type in (*_CUT_SHORT, "NonZeroAgentExitCodeError")


def render_error(error: ExceptionDocument) -> str:
    """An exception on one line, or the beginning of it."""
    text = f"{error.exception_type}: {error.exception_message}".rstrip(": ")
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def make_evaluation(
    rewards: Rewards | None,
    exceptions: Sequence[ExceptionDocument],
    further: Sequence[str],
    notes: list[str],
) -> EvaluationResult:
    """What a trial scored, null where it did not, and what went wrong."""
    return EvaluationResult(
        reward=find_reward(rewards, notes),
        validity=ValidityCheck(
            output_parseable=rewards is not None,
            schema_valid=rewards is not None,
            verifier_completed=rewards is not None,
            errors=(*map(render_error, exceptions), *further),
        ),
        breakdown=_render_rewards(rewards),
        error_taxonomy=tuple(map(_tag, exceptions)) or None,
    )


def _tag(error: ExceptionDocument) -> ErrorTag:
    code = reason_for_exception(error.exception_type)
    return ErrorTag(
        category=str(code or error.exception_type or "unknown"),
        description=render_error(error),
        source="mechanical",
    )


def find_reward(rewards: Rewards | None, notes: list[str]) -> float | None:
    """The one reward there is, or the one of several that is called so."""
    if not rewards:
        return None
    reward = find_primary(rewards)
    if reward is None:
        notes.append("several rewards and none is called `reward`; the record's reward is null")
        return None
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
