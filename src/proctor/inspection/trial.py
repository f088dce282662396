"""One trial in numbers: its traces, beside what its record says of itself.

Where both speak of the same thing, both are kept: turns that the agent reports and turns that were
counted. Tokens are the record's, which knows all calls; the trace's where the record has none.
"""

from collections.abc import Sequence

import msgspec

from proctor.inspection.causes import Cause
from proctor.inspection.limits import Limit, find_in, find_limit, whole
from proctor.inspection.merging import merge_parts
from proctor.inspection.summary import TraceSummary
from proctor.inspection.tokens import LARGEST_COUNT, AdvisorSummary, TokenSummary
from proctor.record.model import TrialRecord


class TrialSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one trial."""

    name: str
    """EXPERIMENT/TRIAL of a sealed trial, else the path that leads to it."""
    trial_id: str | None = None
    experiment_id: str | None = None
    task_id: str | None = None
    agent: str | None = None
    model: str | None = None
    reward: float | None = None
    """Null where it was not scored, which is not 0."""
    reason_code: str | None = None
    """Why it was not, from the closed set."""
    problem: str | None = None
    """Why there is no record of it."""
    trace: TraceSummary = TraceSummary()
    """All its traces as one."""
    parts: tuple[TraceSummary, ...] = ()
    """Each trace of a trial of several steps; empty where there is only one."""
    turns_reported: int | None = None
    """As the agent's own result has them."""
    turns_disagree: bool = False
    """Whether that is another number than was counted."""
    max_turns: int | None = None
    tokens: TokenSummary = TokenSummary()
    """The record's, else the trace's."""
    tokens_in_per_turn: float | None = None
    """Input tokens by counted turns; null where one of the two is not known."""
    tokens_out_per_turn: float | None = None
    cost_usd: float | None = None
    advisor: AdvisorSummary = AdvisorSummary()
    """The record's, else the trace's."""
    agent_seconds: float | None = None
    """The agent's phase, by the record."""
    total_seconds: float | None = None
    """The whole trial, by the record."""
    limit: Limit | None = None
    """The limit that ended it."""
    cause: Cause | None = None
    """Why it failed; null for a trial that did not, or of which nothing but a trace is known."""

    @property
    def has_trace(self) -> bool:
        """Whether there was a trace to count from."""
        return self.trace.file is not None or bool(self.parts)


def summarise_trial(
    name: str,
    parts: Sequence[TraceSummary],
    record: TrialRecord | None = None,
    reason_code: str | None = None,
) -> TrialSummary:
    """One trial by its traces and its record; the cause of a failure is found elsewhere."""
    trace = merge_parts(parts) if parts else TraceSummary()
    several = tuple(parts) if len(parts) > 1 else ()
    bare = TrialSummary(
        name=name, reason_code=reason_code, trace=trace, parts=several, tokens=trace.tokens
    )
    if record is None:
        return _with_rates(msgspec.structs.replace(bare, advisor=trace.advisor))
    told = record.outputs.agent_result or {}
    reported = whole(find_in(told, "turns_used"))
    reported = whole(find_in(told, "turns")) if reported is None else reported
    has_trace = bool(parts)
    return _with_rates(
        msgspec.structs.replace(
            bare,
            trial_id=record.trial_id,
            experiment_id=record.experiment_id,
            task_id=record.task.task_id,
            agent=record.agent.adapter,
            model=record.agent.model,
            reward=record.evaluation.reward,
            turns_reported=reported,
            turns_disagree=has_trace and reported is not None and reported != trace.turns,
            max_turns=whole(find_in(told, "max_turns")),
            tokens=_tokens_of(record, trace),
            cost_usd=record.cost.estimated_cost_usd if record.cost else None,
            advisor=_advisor_of(record, trace),
            agent_seconds=_seconds(record.timing.agent_seconds),
            total_seconds=_seconds(record.timing.total_seconds),
            limit=find_limit(record, reason_code),
        )
    )


def _with_rates(summary: TrialSummary) -> TrialSummary:
    turns, tokens = summary.trace.turns, summary.tokens
    return msgspec.structs.replace(
        summary,
        tokens_in_per_turn=tokens.input / turns if turns and tokens.input is not None else None,
        tokens_out_per_turn=tokens.output / turns if turns and tokens.output is not None else None,
    )


def _seconds(value: object) -> float | None:
    return None if value is None else float(str(value))


def _tokens_of(record: TrialRecord, trace: TraceSummary) -> TokenSummary:
    cost = record.cost
    if cost is None or (cost.tokens_in is None and cost.tokens_out is None):
        return trace.tokens
    if max(cost.tokens_in or 0, cost.tokens_out or 0) > LARGEST_COUNT:
        return trace.tokens
    return TokenSummary(
        source="record",
        input=cost.tokens_in,
        output=cost.tokens_out,
        cache_read=cost.cache_read_tokens,
        cache_write=cost.cache_write_tokens,
        told=trace.tokens.told,
    )


def _advisor_of(record: TrialRecord, trace: TraceSummary) -> AdvisorSummary:
    cost = record.cost
    if cost is None or cost.advisor_calls is None:
        return trace.advisor
    return AdvisorSummary(
        calls=cost.advisor_calls,
        input=cost.advisor_input_tokens,
        output=cost.advisor_output_tokens,
    )
