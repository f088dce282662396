"""Summarise many trials. Missing values are left out, never 0: each mean has its denominator.

Only behaviour is summarised here; scores are not averaged.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from proctor.record.reasons import NOT_SCORED, outcome_of
from proctor.traces.counts import Tally, add_counts
from proctor.traces.summary import Behaviour, merge_behaviour
from proctor.traces.tool_errors import ToolError
from proctor.traces.trial_summary import TrialSummary

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
        sources=_count(trial.trace.source for trial in trials),
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
        limits=_count(trial.limit.kind for trial in trials if trial.limit),
        causes=_count(str(trial.cause.kind) for trial in trials if trial.cause),
        cause_rules=_count(trial.cause.rule for trial in trials if trial.cause),
        turns_disagree=sum(trial.turns_disagree for trial in trials),
        behaviour=merge_behaviour([trace.behaviour for trace in traces]),
    )


def _count(names: Iterable[str]) -> dict[str, int]:
    tally = Tally()
    for name in names:
        tally.add(name)
    return tally.ranked()


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
