"""Summarise one trial: its traces, and its record.

If both contain the same value, both are kept: turns reported by the agent and turns counted. Tokens
are the record's, which covers all calls; the trace's if the record has none.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from proctor.errors import DamageError, TraceError
from proctor.record.model import TrialRecord
from proctor.traces.causes import Case, Cause, find_cause
from proctor.traces.failures import TrialFailures, has_failed, read_failures, read_logs
from proctor.traces.limits import Limit, exception_types, find_in, find_limit, whole
from proctor.traces.summary import TraceSummary, merge_parts, summarise_file
from proctor.traces.tokens import LARGEST_COUNT, AdvisorSummary, TokenSummary
from proctor.traces.traced_trial import FoundTrace, TracedTrial, opened_traces


class TrialSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of one trial."""

    name: str
    """EXPERIMENT/TRIAL of a sealed trial, else its path."""
    trial_id: str | None = None
    experiment_id: str | None = None
    task_id: str | None = None
    agent: str | None = None
    model: str | None = None
    reward: float | None = None
    """Null if not scored, which is not 0."""
    reason_code: str | None = None
    """Reason code, if it was not scored."""
    problem: str | None = None
    """Why it has no record."""
    trace: TraceSummary = TraceSummary()
    """All its traces merged."""
    parts: tuple[TraceSummary, ...] = ()
    """Each trace of a multi-step trial; empty if there is only one."""
    turns_reported: int | None = None
    """According to the agent's result."""
    turns_disagree: bool = False
    """Whether that differs from the number counted."""
    max_turns: int | None = None
    tokens: TokenSummary = TokenSummary()
    """The record's, else the trace's."""
    tokens_in_per_turn: float | None = None
    """Input tokens per counted turn; null if either is unknown."""
    tokens_out_per_turn: float | None = None
    cost_usd: float | None = None
    advisor: AdvisorSummary = AdvisorSummary()
    """The record's, else the trace's."""
    agent_seconds: float | None = None
    """Duration of the agent's phase, from the record."""
    total_seconds: float | None = None
    """Duration of the whole trial, from the record."""
    limit: Limit | None = None
    """The limit that ended it."""
    cause: Cause | None = None
    """Why it failed; null if it did not, or if there is only a trace."""
    failures: TrialFailures = TrialFailures()
    """Its exceptions, and what its verifier reported if it did not pass."""

    @property
    def has_trace(self) -> bool:
        """Whether there was a trace to count from; the output of commands has no steps."""
        return (self.trace.file is not None or bool(self.parts)) and not self.trace.is_output


def summarise_trial(
    name: str,
    parts: Sequence[TraceSummary],
    record: TrialRecord | None = None,
    reason_code: str | None = None,
) -> TrialSummary:
    """Summarise a trial by its traces and record, without the cause of a failure."""
    trace = merge_parts(parts) if parts else TraceSummary()
    several = tuple(parts) if len(parts) > 1 else ()
    bare = TrialSummary(
        name=name, reason_code=reason_code, trace=trace, parts=several, tokens=trace.tokens
    )
    if record is None:
        return _with_rates(msgspec.structs.replace(bare, advisor=trace.advisor))
    result = record.outputs.agent_result or {}
    reported = whole(find_in(result, "turns_used"))
    reported = whole(find_in(result, "turns")) if reported is None else reported
    has_trace = bool(parts) and not trace.is_output
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
            max_turns=whole(find_in(result, "max_turns")),
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
    # A number too large to be a count is ignored; the trace may have a better one.
    if max(cost.tokens_in or 0, cost.tokens_out or 0) > LARGEST_COUNT:
        return trace.tokens
    return TokenSummary(
        source="record",
        input=cost.tokens_in,
        output=cost.tokens_out,
        cache_read=cost.cache_read_tokens,
        cache_write=cost.cache_write_tokens,
        with_usage=trace.tokens.with_usage,
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


_VERIFIER_LOGS: Final = ("verifier/test-stdout.txt", "verifier/test-stderr.txt")
_TRACEBACK: Final = "exception.txt"


def summarise_traced(trial: TracedTrial, *, labelled: bool = False) -> TrialSummary:
    """Summarise a trial. What cannot be read is reported in its `problem`, never raised."""
    problem = trial.problem
    parts: list[TraceSummary] = []
    try:
        with opened_traces(trial, with_output=True) as traces:
            parts = [_summarise(found, labelled=labelled) for found in traces]
    except (TraceError, DamageError) as error:
        problem = str(error)
    summary = summarise_trial(trial.name, parts, trial.record, trial.reason_code)
    summary = msgspec.structs.replace(summary, problem=problem)
    return msgspec.structs.replace(
        summary,
        cause=find_cause(_make_case(trial, summary)),
        # A lone trace has no score to explain.
        failures=read_failures(trial, summary.reward) if trial.lone is None else TrialFailures(),
    )


def _summarise(found: FoundTrace, *, labelled: bool) -> TraceSummary:
    return msgspec.structs.replace(
        summarise_file(found.path, found.kind, labelled=labelled),
        part=found.part,
        file=found.name,
        passed_over=found.passed_over,
    )


def _make_case(trial: TracedTrial, summary: TrialSummary) -> Case:
    """The facts about a failure; for a trial that did not fail, no file is read."""
    record = trial.record
    if record is None:
        # A lone trace has no score to explain, and a withheld trial is unknown.
        is_lost = trial.problem is not None and trial.seq is None
        return Case(reward=None if is_lost else 1.0, problem=trial.problem)
    evaluation, reward = record.evaluation, record.evaluation.reward
    if not has_failed(reward):
        return Case(reward=reward)
    output = record.outputs.agent_output
    return Case(
        reward=reward,
        reason_code=trial.reason_code,
        exceptions=tuple(exception_types(record)),
        agent_error=output.error_message if output else None,
        verifier_completed=evaluation.validity.verifier_completed,
        breakdown=evaluation.breakdown,
        findings=trial.findings,
        limit=summary.limit,
        verifier_logs=read_logs(trial, _VERIFIER_LOGS),
        tracebacks=read_logs(trial, [_TRACEBACK]),
        was_verified=any(_is_verifiers(name) for name in trial.files) or reward is not None,
        is_unverified=_is_unverified(record),
        last_error=summary.trace.errors.last,
    )


def _is_unverified(record: TrialRecord) -> bool:
    verifier = (record.agent.configuration or {}).get("verifier")
    return isinstance(verifier, dict) and verifier.get("disable") is True


def _is_verifiers(name: str) -> bool:
    return name.startswith("verifier/") or "/verifier/" in name
