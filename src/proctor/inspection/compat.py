"""aec-bench's summary of a trial and of many, field for field and rule for rule.

Where its own program stops with an error, there is an answer here: a line that cannot be read is
left out, and a turn count that is no number is null. The rest is as it is, also what is wrong:
`fields_correct` counts a `max_score` of 1, and means divide by trials without a transcript too.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from proctor.inspection.compat_signals import Signals, read_trajectory_signals
from proctor.inspection.compat_spoken import read_conversation_signals
from proctor.record.model import TrialRecord


class TraceSummaryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the peer's `report traces`, by its own names."""

    trial_id: str
    model: str
    task: str
    """The last segment of the task's id."""
    task_type: str
    """The segment before it; the whole id where it has only one."""
    reward: float | None
    """Null where the trial was not scored, which the peer cannot say."""
    turns_used: int | None
    """As the agent reports it, 0 where it does not; null where it is no number."""
    max_turns: int | None
    """Likewise."""
    tokens_in: int
    """0 where it is not known."""
    tokens_out: int
    """0 where it is not known."""
    duration_sec: float
    """Seconds of the agent, or of the whole trial where those are not known or 0."""
    tool_calls: int
    tool_errors: int
    used_calc_tool: bool
    wrote_output: bool
    fields_correct: int
    """Numbers in the breakdown that equal 1."""
    fields_total: int
    """Numbers in the breakdown."""
    first_error: str | None
    trace_path: str


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """Many trials; every mean is over all of them, those without a transcript as 0."""

    n_trials: int
    trials_with_transcript: int
    mean_assistant_messages: float
    mean_tool_call_count: float
    mean_bash_tool_call_count: float


def read_signals(trajectory: str | None, conversation: str | None) -> Signals:
    """The signals of a trial by the files it has: a trajectory hides the conversation.

    Raises:
        TraceError: the file cannot be read at all.
    """
    if trajectory is not None:
        return read_trajectory_signals(trajectory)
    if conversation is not None:
        return read_conversation_signals(conversation)
    return Signals()


def make_summary_record(record: TrialRecord, signals: Signals) -> TraceSummaryRecord:
    """What the peer's report says of a trial."""
    segments = record.task.task_id.split("/")
    result, cost, timing = record.outputs.agent_result or {}, record.cost, record.timing
    numbers = list(_numbers(record.evaluation.breakdown))
    return TraceSummaryRecord(
        trial_id=record.trial_id,
        model=record.agent.model,
        task=segments[-1],
        task_type=segments[-2] if len(segments) > 1 else segments[0],
        reward=record.evaluation.reward,
        turns_used=_whole(result.get("turns_used")),
        max_turns=_whole(result.get("max_turns")),
        tokens_in=(cost.tokens_in if cost else None) or 0,
        tokens_out=(cost.tokens_out if cost else None) or 0,
        duration_sec=float(timing.agent_seconds or timing.total_seconds),
        tool_calls=signals.tool_call_count,
        tool_errors=signals.tool_errors,
        used_calc_tool=signals.used_calc_tool,
        wrote_output=signals.wrote_output,
        fields_correct=sum(number == 1.0 for number in numbers),
        fields_total=len(numbers),
        first_error=signals.first_error,
        trace_path=record.outputs.trajectory_path or record.outputs.conversation_path or "",
    )


def _whole(value: Any) -> int | None:
    """A number as the peer casts it; null where it would stop."""
    try:
        return int(value or 0)
    except (ValueError, TypeError, OverflowError):
        return None


def _numbers(value: Any) -> Iterator[float]:
    """Every number in objects within objects, booleans among them; no lists are entered."""
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            left += found.values()
        elif isinstance(found, int | float):
            yield found


def aggregate(signals: Sequence[Signals]) -> Aggregate:
    """Many trials as the peer sums them up; zeros for none."""
    return Aggregate(
        n_trials=len(signals),
        trials_with_transcript=sum(each.has_transcript for each in signals),
        mean_assistant_messages=_mean([each.assistant_messages for each in signals]),
        mean_tool_call_count=_mean([each.tool_call_count for each in signals]),
        mean_bash_tool_call_count=_mean([each.bash_tool_call_count for each in signals]),
    )


def _mean(counts: Sequence[int]) -> float:
    return math.fsum(counts) / len(counts) if counts else 0.0
