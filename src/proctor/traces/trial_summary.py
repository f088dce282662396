"""Summarise one trial by its traces and its record, and many trials.

If both contain the same value, both are kept: turns reported by the agent and turns counted. Tokens
are the record's, which covers all calls; the trace's if the record has none.

Values that a trial lacks are left out of the numbers of many, never 0: each mean has its
denominator. Only behaviour is summarised here; scores are not averaged.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from proctor.errors import DamageError, TraceError
from proctor.record.model import TrialRecord
from proctor.record.reasons import NOT_SCORED, outcome_of
from proctor.traces.causes import Case, Cause, find_cause
from proctor.traces.counts import add_counts, count_names
from proctor.traces.failures import TrialFailures, has_failed, read_failures, read_logs
from proctor.traces.limits import Limit, exception_types, find_in, find_limit, whole
from proctor.traces.summary import (
    Behaviour,
    TraceSummary,
    merge_behaviour,
    merge_parts,
    summarise_file,
)
from proctor.traces.tool_errors import ToolError
from proctor.traces.traced_trial import TracedTrial, opened_traces
from proctor.traces.usage import LARGEST_COUNT, AdvisorSummary, TokenSummary


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
    trace = merge_parts(parts)
    turns = trace.turns
    tokens = trace.tokens if record is None else _tokens_of(record, trace)
    summary = TrialSummary(
        name=name,
        reason_code=reason_code,
        trace=trace,
        parts=tuple(parts) if len(parts) > 1 else (),
        tokens=tokens,
        tokens_in_per_turn=tokens.input / turns if turns and tokens.input is not None else None,
        tokens_out_per_turn=tokens.output / turns if turns and tokens.output is not None else None,
        advisor=trace.advisor,
    )
    if record is None:
        return summary
    result, cost = record.outputs.agent_result or {}, record.cost
    reported = whole(find_in(result, "turns_used"))
    reported = whole(find_in(result, "turns")) if reported is None else reported
    if cost is not None and cost.advisor_calls is not None:
        summary = msgspec.structs.replace(
            summary,
            advisor=AdvisorSummary(
                calls=cost.advisor_calls,
                input=cost.advisor_input_tokens,
                output=cost.advisor_output_tokens,
            ),
        )
    has_trace = bool(parts) and not trace.is_output
    return msgspec.structs.replace(
        summary,
        trial_id=record.trial_id,
        experiment_id=record.experiment_id,
        task_id=record.task.task_id,
        agent=record.agent.adapter,
        model=record.agent.model,
        reward=record.evaluation.reward,
        turns_reported=reported,
        turns_disagree=has_trace and reported is not None and reported != turns,
        max_turns=whole(find_in(result, "max_turns")),
        cost_usd=cost.estimated_cost_usd if cost else None,
        agent_seconds=_seconds(record.timing.agent_seconds),
        total_seconds=_seconds(record.timing.total_seconds),
        limit=find_limit(record, reason_code),
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


_VERIFIER_LOGS: Final = ("verifier/test-stdout.txt", "verifier/test-stderr.txt")
_TRACEBACK: Final = "exception.txt"


def summarise_traced(trial: TracedTrial, *, labelled: bool = False) -> TrialSummary:
    """Summarise a trial. What cannot be read is reported in its `problem`, never raised."""
    problem = trial.problem
    parts: list[TraceSummary] = []
    try:
        with opened_traces(trial, with_output=True) as traces:
            parts = [
                msgspec.structs.replace(
                    summarise_file(found.path, found.kind, labelled=labelled),
                    part=found.part,
                    file=found.name,
                    passed_over=found.passed_over,
                )
                for found in traces
            ]
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
    verifier = (record.agent.configuration or {}).get("verifier")
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
        was_verified=reward is not None
        or any(name.startswith("verifier/") or "/verifier/" in name for name in trial.files),
        is_unverified=isinstance(verifier, dict) and verifier.get("disable") is True,
        last_error=summary.trace.errors.last,
    )


# Many trials


_SHOWN_ERRORS: Final = 10
_LONGEST_LINE: Final = 160
_VARYING: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


class Average(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and median over the trials that have the value."""

    mean: float | None
    """Null if no trial has it."""
    median: float | None
    n: int
    """Number of trials that have it."""


class GroupedError(msgspec.Struct, frozen=True, kw_only=True):
    """First errors with equal text, apart from numbers."""

    trials: int
    tool: str
    text: str
    """The most informative line, from the first trial."""
    example: str
    """Name of that trial."""
    step: int
    """The step of the error."""


class ExperimentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of many trials."""

    trials: int
    with_trace: int
    """Trials with a usable trace; means over traces include at most these."""
    sources: dict[str, int]
    """Kinds of traces that were read."""
    degraded: int
    """Traces with unreadable parts."""
    without_record: int
    """Trials without a record: whether they were scored is unknown."""
    scored: int
    passed: int
    """Scored 1 or more."""
    averages: dict[str, Average]
    """By name: turns, messages, tool_calls, tool_errors, repeats, seconds, tokens, cost."""
    tool_results: int
    tool_errors: int
    error_rate: float | None
    """Tool errors per tool result; null without results."""
    by_reason: dict[str, int]
    by_tool: dict[str, int]
    """Tool calls by tool."""
    with_errors: int
    """Trials with at least one tool error."""
    recovered: int
    """Of these, trials in which the tool of the first error worked again."""
    first_errors: tuple[GroupedError, ...]
    """The most frequent ones, at most ten."""
    limits: dict[str, int]
    """Trials ended by a limit, by its kind."""
    causes: dict[str, int]
    """Failed trials by cause."""
    cause_rules: dict[str, int]
    """Failed trials by the rule that found the cause."""
    turns_disagree: int
    """Trials whose agent reports another number of turns than counted."""
    behaviour: Behaviour | None


_AVERAGED: Final[dict[str, Callable[[TrialSummary], float | None]]] = {
    "turns": lambda trial: _traced(trial, trial.trace.turns),
    "messages": lambda trial: _traced(trial, trial.trace.messages),
    "tool_calls": lambda trial: _traced(trial, trial.trace.tool_calls),
    "tool_errors": lambda trial: _traced(trial, trial.trace.errors.total),
    "repeats": lambda trial: _traced(trial, trial.trace.loops.repeats),
    "wall_seconds": lambda trial: trial.trace.times.wall_seconds,
    "idle_seconds": lambda trial: trial.trace.times.idle_seconds,
    "seconds_to_first_write": lambda trial: trial.trace.written.seconds_to_first,
    "agent_seconds": lambda trial: trial.agent_seconds,
    "tokens_in": lambda trial: trial.tokens.input,
    "tokens_out": lambda trial: trial.tokens.output,
    "cost_usd": lambda trial: trial.cost_usd,
}


def _traced(trial: TrialSummary, count: int) -> int | None:
    return count if trial.has_trace else None


def summarise_experiment(trials: Sequence[TrialSummary]) -> ExperimentSummary:
    """Summarise many trials."""
    traces = [trial.trace for trial in trials if trial.has_trace]
    results = sum(trace.errors.results for trace in traces)
    errors = sum(trace.errors.total for trace in traces)
    firsts = [
        (trial.name, trial.trace.errors.first) for trial in trials if trial.trace.errors.first
    ]
    recorded = [trial for trial in trials if trial.trial_id is not None]
    return ExperimentSummary(
        trials=len(trials),
        with_trace=len(traces),
        sources=count_names(trial.trace.source for trial in trials),
        degraded=sum(trace.degraded for trace in traces),
        without_record=len(trials) - len(recorded),
        scored=sum(outcome_of(trial) != NOT_SCORED for trial in recorded),
        passed=sum(trial.reward is not None and trial.reward >= 1 for trial in recorded),
        averages={name: average(map(of, trials)) for name, of in _AVERAGED.items()},
        tool_results=results,
        tool_errors=errors,
        error_rate=errors / results if results else None,
        by_reason=add_counts(*(trace.errors.by_reason for trace in traces)),
        by_tool=add_counts(*(trace.by_tool for trace in traces)),
        with_errors=len(firsts),
        recovered=sum(error.is_recovered for _, error in firsts),
        first_errors=group_errors(firsts),
        limits=count_names(trial.limit.kind for trial in trials if trial.limit),
        causes=count_names(str(trial.cause.kind) for trial in trials if trial.cause),
        cause_rules=count_names(trial.cause.rule for trial in trials if trial.cause),
        turns_disagree=sum(trial.turns_disagree for trial in trials),
        behaviour=merge_behaviour([trace.behaviour for trace in traces]),
    )


# Larger numbers in a record are implausible.
_LARGEST: Final = 1e15


def average(values: Iterable[float | None]) -> Average:
    """Mean and median of the known values."""
    known = sorted(value for value in values if value is not None and abs(value) <= _LARGEST)
    if not known:
        return Average(mean=None, median=None, n=0)
    middle = len(known) // 2
    median = known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
    return Average(mean=math.fsum(known) / len(known), median=float(median), n=len(known))


def group_errors(firsts: Sequence[tuple[str, ToolError]]) -> tuple[GroupedError, ...]:
    """Group the first errors of many trials by text."""
    groups: dict[tuple[str, str], list[tuple[str, ToolError]]] = {}
    for name, error in firsts:
        # Numbers vary from run to run (ports, sizes, addresses); the rest of the line does not.
        key = error.tool, _VARYING.sub("#", most_informative_line(error))
        groups.setdefault(key, []).append((name, error))
    ranked = sorted(groups.values(), key=lambda group: -len(group))
    return tuple(
        GroupedError(
            trials=len(group),
            tool=group[0][1].tool,
            text=most_informative_line(group[0][1]),
            example=group[0][0],
            step=group[0][1].step,
        )
        for group in ranked[:_SHOWN_ERRORS]
    )


def most_informative_line(error: ToolError) -> str:
    """The most informative line of an error: the last, as in a traceback; else the exit code."""
    lines = [line.strip() for line in error.text.splitlines() if line.strip()]
    if not lines:
        return error.reason if error.exit_code is None else f"exit {error.exit_code}, no text"
    return lines[-1][:_LONGEST_LINE]
