"""`proctor trace summary`: summarizes one or many trials."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import click
import msgspec

from proctor.cli.ledger.filters import filter_options
from proctor.cli.ledger.options import ledger_option
from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import sample_option
from proctor.cli.output import json_option, print_json, print_line, terminal_width
from proctor.cli.tables import print_rows
from proctor.cli.trace.select_trials import leave_out, render_left_out, traced_trials
from proctor.cli.trace.summary_text import (
    render_behaviour,
    render_counts,
    render_field,
    render_reward,
    render_trial,
)
from proctor.exchange.traced_files import find_in_files, find_set_aside, list_places
from proctor.ledger.counting import SET_ASIDE
from proctor.ledger.trial_index import TrialFilter
from proctor.report.page.figures import UNKNOWN, render_seconds
from proctor.sentence import count_of, render_figure, render_percent
from proctor.traces.parallel import count_processors, map_paths
from proctor.traces.trial_summary import (
    Average,
    ExperimentSummary,
    TrialSummary,
    most_informative_line,
    summarise_experiment,
    summarise_traced,
)

# Summaries of several trials: a table, and lines below it


WIDE = 120
"""Columns of a terminal from which on everything is shown."""
_NUMBERS = ("turns", "calls", "errors", "repeats", "wall", "tokens")
_NARROW = ("trial", "reward", "turns", "errors", "cause", "first error")


def print_trials(trials: Sequence[TrialSummary], width: int | None) -> None:
    """Print one row for each trial; a narrow terminal gets the most important columns."""
    is_narrow = width is not None and width < WIDE
    columns = {name: of for name, of in _COLUMNS.items() if not is_narrow or name in _NARROW}
    rows = [[of(trial) for of in columns.values()] for trial in trials]
    print_rows(tuple(columns), rows, right=_NUMBERS, dear=("trial", "reward", "cause", *_NUMBERS))


def _first_error(trial: TrialSummary) -> str:
    error = trial.trace.errors.first
    if error is None:
        return "-"
    part = f" of {error.part}" if error.part else ""
    return f"step {error.step}{part} {error.tool}: {most_informative_line(error)}"


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
    """Render the totals of trials in `width` columns."""
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
    rate = UNKNOWN if found.error_rate is None else render_percent(found.error_rate)
    results = count_of(found.tool_results, "result")
    yield "error rate", f"{rate} ({found.tool_errors:,} of {results})"
    if found.tool_errors:
        yield "error reasons", render_counts(found.by_reason)
        over = f"{found.recovered:,} recovered from the first"
        yield "with errors", f"{count_of(found.with_errors, 'trial')}, {over}"
    if found.limits:
        yield "limits hit", render_counts(found.limits)
    if found.causes:
        rules = render_counts(found.cause_rules, most=20)
        yield "causes", f"{render_counts(found.causes)}\nby rule: {rules}"
    if found.turns_disagree:
        who = count_of(found.turns_disagree, "agent")
        yield "turns", f"{who} reported a different number of turns than counted (marked !)"
    if found.behaviour is not None:
        yield "behaviour", render_behaviour(found.behaviour)
    for at, error in enumerate(found.first_errors):
        text = f"{count_of(error.trials, 'trial')}: {error.tool or 'a tool'}: {error.text}"
        example = f"for one, step {error.step} of {error.example}"
        yield "first errors" if at == 0 else "", f"{text}\n{example}"


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
        return render_figure(value)

    over = f"{average.n:,} of {count_of(trials, 'trial')}"
    return f"mean {shown(average.mean)}, median {shown(average.median)}, over {over}"


# Trials from which on starting several processes pays off.
_MANY: Final = 64
# Columns without a terminal.
_PLAIN_WIDTH: Final = 100


@click.command("summary")
@click.argument("things", nargs=-1, metavar="[THING]...")
@ledger_option
@sample_option
@filter_options
@json_option
def command(
    things: tuple[str, ...],
    directory: str | None,
    as_json: bool,
    wanted: TrialFilter,
) -> int:
    """Summarize traces: turns, tool calls, errors, loops, time, tokens, cause of failure.

    A THING is a trace, a trial, a job, a record, a sealed trial or an experiment; without one, all
    sealed trials that match the filters are summarized. One trial gets a page; several get a table
    and totals. docs/reference/summaries.md explains every number.

    Example: proctor trace summary --experiment nightly --where reward=..0.5
    """
    left_out: Counter[str] = Counter()
    trials = list(_summarise(things, directory, wanted, left_out))
    if as_json:
        whole = summarise_experiment(trials)
        document = {"trials": trials, "experiment": whole, "left_out": left_out}
        print_json(msgspec.to_builtins(document, enc_hook=str))
    else:
        width = terminal_width()
        lines: Iterator[str] = iter(())
        if not trials:
            print_line("no trial matches")
        elif len(trials) == 1:
            lines = render_trial(trials[0], width or _PLAIN_WIDTH)
        else:
            print_trials(trials, width)
            print_line()
            lines = render_experiment(summarise_experiment(trials), width or _PLAIN_WIDTH)
        for line in lines:
            print_line(line)
        _say_without_trace(trials)
        if left_out:
            print_line()
            print_line(render_left_out(left_out))
    return 0


def summarise_path(path: str) -> tuple[list[TrialSummary], Counter[str]]:
    """Summarize every trial at a path that counts, and count the others by status."""
    left_out: Counter[str] = Counter()
    counted = leave_out(find_in_files(path), left_out)
    return [summarise_traced(trial, labelled=True) for trial in counted], left_out


def _summarise(
    things: tuple[str, ...], directory: str | None, wanted: TrialFilter, left_out: Counter[str]
) -> Iterator[TrialSummary]:
    """The summaries of the selected trials that count, in order."""
    show = make_progress()
    is_all_files = directory is None and all(map(os.path.lexists, things))
    if things and is_all_files and wanted == TrialFilter():
        aside = frozenset().union(*map(find_set_aside, things))
        found = [place for thing in things for place in list_places(thing)]
        places = [place for place in found if place not in aside]
        for place in set(found) & aside:
            left_out[SET_ASIDE] += sum(1 for _ in find_in_files(place))
        processes = count_processors() if len(places) >= _MANY else 1
        for done, (counted, others) in enumerate(map_paths(summarise_path, places, processes), 1):
            yield from counted
            left_out.update(others)
            show("trials summarized", done, len(places))
        return
    with traced_trials(things, directory, wanted, left_out) as trials:
        waiting = list(trials)
        for done, trial in enumerate(waiting, 1):
            yield summarise_traced(trial, labelled=True)
            show("trials summarized", done, len(waiting))


def _say_without_trace(trials: list[TrialSummary]) -> None:
    without = [trial for trial in trials if not trial.has_trace]
    if not without or (len(trials) == 1 and trials[0].trace.is_output):
        return
    print_line()
    if len(trials) == 1:
        print_line("It has no usable trace: numbers counted from a trace are 0 or unknown.")
        return
    which = count_of(len(without), "trial")
    print_line(f"No usable trace, so not counted in means over traces: {which}")
    for trial in [each for each in without if each.problem][:5]:
        problem = (trial.problem or "").removeprefix(f"{trial.name}: ")
        print_line(f"  {trial.name}: {problem}")
