"""`proctor compare`: compares the scores and behaviour of two runs."""

import contextlib
import os
import shlex
from collections.abc import Iterator, Sequence

import click
import msgspec

from proctor.cli.ledger.options import choose_directory, ledger_option, open_ledger
from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import PATH, check_apart, name_ledger, sample_option
from proctor.cli.output import json_option, print_json, print_line, terminal_width
from proctor.cli.stdout import send
from proctor.errors import InputError
from proctor.ledger.log import is_ledger
from proctor.ledger.reader import LedgerReader
from proctor.report.behaviour import Behaviour, summarise_trials
from proctor.report.comparison.compared import (
    Comparison,
    Terms,
    choose_sides,
    compare_sides,
)
from proctor.report.comparison.document import render_comparison
from proctor.report.comparison.sides import Side, make_side
from proctor.report.page.markdown import render_markdown
from proctor.report.page.text import render_text
from proctor.report.runs import is_job_path, load_run

_MOST_COMMANDS = 10


@click.command("compare")
@click.argument("one", metavar="A", type=PATH)
@click.argument("other", metavar="B", type=PATH)
@ledger_option
@sample_option
@click.option(
    "--a", "group_a", metavar="NAME", help="Select the agent and model of A by part of their name."
)
@click.option(
    "--b", "group_b", metavar="NAME", help="Select the agent and model of B by part of their name."
)
@click.option(
    "--common", is_flag=True, help="Compare only tasks that both runs have at the same revision."
)
@click.option(
    "--allow-unlike", is_flag=True, help="Compare even if revisions or conditions differ."
)
@click.option(
    "--no-behaviour", is_flag=True, help="Skip the traces: compare only scores, time and cost."
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Print Markdown.")
@json_option
def command(
    one: str,
    other: str,
    directory: str | None,
    group_a: str | None,
    group_b: str | None,
    as_json: bool,
    **flags: bool,
) -> int:
    """Compare two runs, task by task.

    Shows scores with their uncertainty, and how the agents worked. A and B are experiments in a
    ledger, or directories of harbor jobs. If one has several agents or models, select one with --a
    and --b; A and B may be the same run. Runs whose tasks, revisions or conditions differ are
    refused, with the differences. docs/guide/compare.md explains how each number is computed.

    Example: proctor compare nightly candidate --common
    """
    check_apart("as_json", "as_markdown")
    terms = Terms(common=flags["common"], allow_unlike=flags["allow_unlike"])
    with opened_for((one, other), directory) as ledger:
        is_named = directory is not None
        a = make_side("A", load_run(one, ledger, prefers_ledger=is_named), group_a)
        b = make_side("B", load_run(other, ledger, prefers_ledger=is_named), group_b)
        behaviour = None if flags["no_behaviour"] else _read_traces(a, b, terms, ledger)
        compared = compare_sides(a, b, terms, behaviour)
    commands = [] if as_json else list(_commands(compared, (a, b), directory))
    if as_json:
        print_json(msgspec.to_builtins(compared))
        return 0
    document = render_comparison(compared, commands)
    if flags["as_markdown"]:
        send(render_markdown(document).rstrip("\n"))
        return 0
    for line in render_text(document, terminal_width()):
        print_line(line)
    return 0


@contextlib.contextmanager
def opened_for(things: Sequence[str], directory: str | None) -> Iterator[LedgerReader | None]:
    """Open the ledger if it was given, or if one of the things is not the path of a job.

    Raises:
        InputError: there is none.
    """
    named = [thing for thing in things if not is_job_path(thing)]
    if not named and directory is None:
        yield None
        return
    place = choose_directory(directory)
    if directory is None and not is_ledger(place):
        missing = [thing for thing in named if not os.path.lexists(thing)]
        if not missing:
            yield None
            return
        raise InputError(
            f"{missing[0]}: there is no such directory, and no ledger at {place} that could "
            "contain it; --ledger or PROCTOR_LEDGER names one"
        )
    with open_ledger(directory) as ledger:
        yield ledger


def _read_traces(a: Side, b: Side, terms: Terms, ledger: LedgerReader | None) -> Behaviour:
    sides = choose_sides(a, b, terms)
    attempts = {each.name: each for side in sides for each in side.trials}
    return summarise_trials(list(attempts.values()), ledger, make_progress())


def _commands(compared: Comparison, sides: Sequence[Side], directory: str | None) -> Iterator[str]:
    """For tasks where the sides differ, the command that shows the attempt that scored less."""
    places = {each.name: each.place or each.name for side in sides for each in side.trials}
    ledger = name_ledger(directory)
    differing = [each for each in compared.tasks if each.difference]
    for each in sorted(differing, key=lambda pair: -abs(pair.difference or 0))[:_MOST_COMMANDS]:
        less = each.trial_b if (each.difference or 0) > 0 else each.trial_a
        yield shlex.join(["proctor", "show", places[less], *ledger])
