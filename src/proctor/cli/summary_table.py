"""Many trials' summaries as a table and the lines below it."""

from collections.abc import Callable, Iterator, Sequence

from proctor.cli.ledger.plain_table import print_rows
from proctor.cli.summary_text import (
    render_behaviour,
    render_counts,
    render_field,
    render_reward,
)
from proctor.report.page.figures import UNKNOWN, render_seconds
from proctor.sentence import count_of
from proctor.traces.experiment import Average, ExperimentSummary, telling_line
from proctor.traces.trial_summary import TrialSummary

WIDE = 120
"""Columns of a terminal from which on everything is shown."""
_NUMBERS = ("turns", "calls", "errors", "repeats", "wall", "tokens")
_NARROW = ("trial", "reward", "turns", "errors", "cause", "first error")


def print_trials(trials: Sequence[TrialSummary], width: int | None) -> None:
    """One row a trial; a narrow terminal gets the columns that matter most, its name before all."""
    is_narrow = width is not None and width < WIDE
    columns = {name: of for name, of in _COLUMNS.items() if not is_narrow or name in _NARROW}
    rows = [[of(trial) for of in columns.values()] for trial in trials]
    print_rows(tuple(columns), rows, right=_NUMBERS, dear=("trial", "reward", "cause", *_NUMBERS))


def _first_error(trial: TrialSummary) -> str:
    error = trial.trace.errors.first
    if error is None:
        return "-"
    part = f" of {error.part}" if error.part else ""
    return f"step {error.step}{part} {error.tool}: {telling_line(error)}"


def _traced(of: Callable[[TrialSummary], str]) -> Callable[[TrialSummary], str]:
    return lambda trial: of(trial) if trial.has_trace else "-"


def _tokens(trial: TrialSummary) -> str:
    known = [count for count in (trial.tokens.input, trial.tokens.output) if count is not None]
    return f"{sum(known):,}" if known else "-"


def _wall(trial: TrialSummary) -> str:
    seconds = trial.trace.times.wall_seconds
    return "-" if seconds is None else render_seconds(seconds)


_COLUMNS: dict[str, Callable[[TrialSummary], str]] = {
    "trial": lambda trial: trial.trial_id or trial.name,
    "reward": lambda trial: (
        "-" if trial.task_id is None else render_reward(trial).partition(":")[0]
    ),
    "source": lambda trial: trial.trace.source,
    "turns": _traced(lambda trial: f"{trial.trace.turns:,}{'!' if trial.turns_disagree else ''}"),
    "calls": _traced(lambda trial: f"{trial.trace.tool_calls:,}"),
    "errors": _traced(lambda trial: f"{trial.trace.errors.total:,}"),
    "repeats": _traced(lambda trial: f"{trial.trace.loops.repeats:,}"),
    "wall": _wall,
    "tokens": _tokens,
    "limit": lambda trial: trial.limit.kind if trial.limit else "-",
    "cause": lambda trial: str(trial.cause.kind) if trial.cause else "-",
    "first error": _first_error,
}


def render_experiment(found: ExperimentSummary, width: int) -> Iterator[str]:
    """What the trials come to, in so many columns."""
    for label, text in _fields(found):
        yield from render_field(label, text, width)


def _fields(found: ExperimentSummary) -> Iterator[tuple[str, str]]:
    unscored = found.trials - found.scored - found.without_record
    scored = f"{found.scored:,} scored, {found.passed:,} of them 1 or more"
    bare = f"; {found.without_record:,} without a record" if found.without_record else ""
    yield "trials", f"{found.trials:,}: {scored}; {unscored:,} not scored{bare}"
    degraded = f"; {found.degraded:,} degraded" if found.degraded else ""
    yield "traces", f"{found.with_trace:,}: {render_counts(found.sources)}{degraded}"
    for label, text in _AVERAGES.items():
        average = found.averages[label]
        if average.n:
            yield text, _render_average(average, found.trials, seconds="seconds" in label)
    yield "tools", render_counts(found.by_tool)
    yield from _error_fields(found)
    yield from _cause_fields(found)
    if found.behaviour is not None:
        yield "behaviour", render_behaviour(found.behaviour)
    for at, error in enumerate(found.first_errors):
        text = f"{count_of(error.trials, 'trial')}: {error.tool or 'a tool'}: {error.text}"
        example = f"for one, step {error.step} of {error.example}"
        yield "first errors" if at == 0 else "", f"{text}\n{example}"


def _error_fields(found: ExperimentSummary) -> Iterator[tuple[str, str]]:
    rate = UNKNOWN if found.error_rate is None else f"{found.error_rate:.1%}"
    results = count_of(found.tool_results, "result")
    yield "error rate", f"{rate} ({found.tool_errors:,} of {results})"
    if found.tool_errors:
        yield "error reasons", render_counts(found.by_reason)
        over = f"{found.recovered:,} of them got over the first one"
        yield "with errors", f"{count_of(found.with_errors, 'trial')}, {over}"


def _cause_fields(found: ExperimentSummary) -> Iterator[tuple[str, str]]:
    if found.limits:
        yield "limits hit", render_counts(found.limits)
    if found.causes:
        rules = render_counts(found.cause_rules, most=20)
        yield "causes", f"{render_counts(found.causes)}\nby rule: {rules}"
    if found.turns_disagree:
        who = count_of(found.turns_disagree, "agent")
        yield "turns", f"{who} reported another number of turns than was counted (marked !)"


_AVERAGES = {
    "turns": "turns",
    "tool_calls": "tool calls",
    "tool_errors": "tool errors",
    "repeats": "repeats",
    "wall_seconds": "wall time",
    "idle_seconds": "idle time",
    "seconds_to_first_write": "first write",
    "tokens_in": "tokens in",
    "tokens_out": "tokens out",
    "cost_usd": "cost USD",
}


def _render_average(average: Average, trials: int, *, seconds: bool) -> str:
    def shown(value: float | None) -> str:
        if value is None:
            return UNKNOWN
        if seconds:
            return render_seconds(value)
        return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"

    over = f"{average.n:,} of {count_of(trials, 'trial')}"
    return f"mean {shown(average.mean)}, median {shown(average.median)}, over {over}"
