"""`proctor trace summary`: what happened in one trial, or in many."""

import os
from collections.abc import Iterator
from typing import Final

import click
import msgspec

from proctor.cli.ledger.filters import filter_options
from proctor.cli.ledger.options import ledger_option
from proctor.cli.ledger.plain_table import print_rows
from proctor.cli.ledger.progress import make_progress
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.summary_table import print_trials, render_experiment
from proctor.cli.summary_text import render_trial
from proctor.cli.traced import traced_trials
from proctor.cli.width import find_width
from proctor.errors import DamageError, TraceError
from proctor.exchange.traced_files import find_in_files, list_places
from proctor.ledger.query import TrialFilter
from proctor.sentence import count_of
from proctor.traces.compat_summary import Aggregate, Signals, aggregate
from proctor.traces.experiment import summarise_experiment
from proctor.traces.label_rules import Classifier
from proctor.traces.parallel import map_paths
from proctor.traces.trial_summary import Compared, TrialSummary, compare_traced, summarise_traced

_MANY: Final = 64
"""Trials from which on more than one process is worth its start."""
_PLAIN_WIDTH: Final = 100
"""Columns where there is no screen."""


@click.command("summary")
@click.argument("things", nargs=-1, metavar="[THING]...")
@ledger_option
@filter_options
@click.option("--compat", is_flag=True, help="Print aec-bench's numbers instead of proctor's.")
@json_option
def summary(
    things: tuple[str, ...],
    directory: str | None,
    compat: bool,
    as_json: bool,
    wanted: TrialFilter,
) -> int:
    """Summarize traces: turns, tool calls, errors, loops, time, tokens, cause of failure.

    A THING is a trace, a trial, a job, a record, a sealed trial or an experiment; without one, all
    sealed trials that match the filters are summarized. One trial gets a page; several get a table
    and totals. docs/summaries.md explains what each number counts and where it comes from.

    Example: proctor trace summary --experiment nightly --reward ..0.5
    """
    if compat:
        _print_compat(list(_compare(things, directory, wanted)), as_json=as_json)
        return 0
    trials = list(_summarise(things, directory, wanted))
    if as_json:
        document = {"trials": trials, "experiment": summarise_experiment(trials)}
        print_json(msgspec.to_builtins(document, enc_hook=str))
    else:
        _print(trials)
    return 0


def summarise_path(path: str) -> list[TrialSummary]:
    """Every trial that a path leads to, summed up.

    Raises:
        InputError: there is nothing that could have a trace.
    """
    return [summarise_traced(trial, Classifier) for trial in find_in_files(path)]


def _summarise(
    things: tuple[str, ...], directory: str | None, wanted: TrialFilter
) -> Iterator[TrialSummary]:
    """The summaries of the trials meant, in their order."""
    show = make_progress()
    is_all_files = directory is None and all(map(os.path.lexists, things))
    if things and is_all_files and wanted == TrialFilter():
        places = [place for thing in things for place in list_places(thing)]
        processes = len(os.sched_getaffinity(0)) if len(places) >= _MANY else 1
        for done, found in enumerate(map_paths(summarise_path, places, processes), 1):
            yield from found
            show("trials summed up", done, len(places))
        return
    with traced_trials(things, directory, wanted) as trials:
        waiting = list(trials)
        for done, trial in enumerate(waiting, 1):
            yield summarise_traced(trial, Classifier)
            show("trials summed up", done, len(waiting))


def _print(trials: list[TrialSummary]) -> None:
    width = find_width()
    lines: Iterator[str] = iter(())
    if not trials:
        print_line("no trial fits")
    elif len(trials) == 1:
        lines = render_trial(trials[0], width or _PLAIN_WIDTH)
    else:
        print_trials(trials, width)
        print_line()
        lines = render_experiment(summarise_experiment(trials), width or _PLAIN_WIDTH)
    for line in lines:
        print_line(line)
    _say_without_trace(trials)


def _say_without_trace(trials: list[TrialSummary]) -> None:
    without = [trial for trial in trials if not trial.has_trace]
    if not without:
        return
    print_line()
    if len(trials) == 1:
        print_line("It left no trace that could be used: what is counted from one is 0 or unknown.")
        return
    which = count_of(len(without), "trial")
    print_line(f"{which} left no trace that could be used; no mean of a trace counts them.")
    for trial in [each for each in without if each.problem][:5]:
        said = (trial.problem or "").removeprefix(f"{trial.name}: ")
        print_line(f"  {trial.name}: {said}")


def _compare(
    things: tuple[str, ...], directory: str | None, wanted: TrialFilter
) -> Iterator[Compared]:
    with traced_trials(things, directory, wanted) as trials:
        for trial in trials:
            try:
                yield compare_traced(trial)
            except (TraceError, DamageError) as error:
                click.echo(f"{trial.name!r}: {str(error)!r}", err=True)
                yield Compared(name=trial.name, signals=Signals(), record=None)


def _print_compat(found: list[Compared], *, as_json: bool) -> None:
    whole = aggregate([each.signals for each in found])
    if as_json:
        print_json(msgspec.to_builtins({"trials": found, "aggregate": whole}))
        return
    if not found:
        print_line("no trial fits")
        return
    names = [name for name in Signals.__struct_fields__ if name != "first_error"]
    rows = [
        [each.name, *(str(getattr(each.signals, name)) for name in names), _first(each)]
        for each in found
    ]
    print_rows(["trial", *names, "first_error"], rows, right=names)
    print_line()
    for name in Aggregate.__struct_fields__:
        print_line(f"{name} {getattr(whole, name)}")


def _first(found: Compared) -> str:
    return found.signals.first_error or "-"
