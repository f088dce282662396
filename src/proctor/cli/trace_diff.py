"""`proctor trace diff`: compares two trajectories, or two outputs, and shows where they diverge."""

import contextlib
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import click
import msgspec

from proctor.cli.ledger.options import ledger_option
from proctor.cli.output import json_option, print_json
from proctor.cli.pager import page
from proctor.cli.trace_text import break_line, columns_of, fold
from proctor.cli.traced import traced_trials
from proctor.errors import InputError
from proctor.ledger.trial_index import TrialFilter
from proctor.sentence import count_of, printable
from proctor.traces.actions import NORMALISATIONS, Action, read_actions
from proctor.traces.divergence import (
    Divergence,
    Hunk,
    Opening,
    Sides,
    compare_actions,
    describe_divergence,
)
from proctor.traces.entry import TraceKind
from proctor.traces.trace import TraceReading
from proctor.traces.traced_trial import FoundTrace, TracedTrial, opened_traces

# Two texts side by side if there is room, else one below the other


# Columns from which on two texts are shown side by side.
_ROOM = 120
_GAP = " | "
_INDENT = "  "

type Titled = tuple[str, Sequence[str]]
"""The title of a text, and its lines."""


def render_beside(left: Titled, right: Titled, columns: int) -> Iterator[str]:
    """Render both texts within the width of the screen."""
    if columns < _ROOM:
        for title, lines in (left, right):
            yield f"{_INDENT}{title}:"
            room = max(columns - 2 * len(_INDENT), 1)
            yield from (2 * _INDENT + piece for line in lines for piece in break_line(line, room))
        return
    room = (columns - len(_INDENT) - len(_GAP)) // 2
    both = [
        [piece for line in [f"{title}:", *lines] for piece in break_line(line, room)]
        for title, lines in (left, right)
    ]
    for mine, theirs in zip_longest(*both, fillvalue=""):
        blanks = " " * (room - columns_of(mine))
        yield f"{_INDENT}{mine}{blanks}{_GAP}{theirs}".rstrip()


_MOST_HUNKS = 40
_LONGEST = 800


@click.command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--part", metavar="NAME", help="Compare only this part of multi-step trials.")
@click.option("--full", is_flag=True, help="Show whole texts and the whole alignment.")
@ledger_option
@click.option("--no-pager", is_flag=True, help="Do not use a pager, even on a terminal.")
@json_option
def diff(
    a: str,
    b: str,
    part: str | None,
    full: bool,
    directory: str | None,
    no_pager: bool,
    as_json: bool,
) -> int:
    """Compare two trajectories side by side, and show where they diverge.

    A and B are traces, trials or sealed trials, in any combination. Only actions are compared: the
    tool and its command, ignoring insignificant whitespace. What an agent says is not compared. If
    the same action got different results before the agents diverge, the environment diverged first;
    times, process ids, temporary names and the like in results do not count as differences.

    If an agent wrote no trace, the recorded output of both is compared, line by line.

    Example: proctor trace diff job/hello__AbCdEfg job/hello__HiJkLmN
    """
    openings = Opening(), Opening()
    with opened_pair((a, b), directory, part) as (mine, theirs):
        found = compare_actions(
            read_actions(openings[0].listen(TraceReading(mine.path, mine.kind).entries())),
            read_actions(openings[1].listen(TraceReading(theirs.path, theirs.kind).entries())),
        )
    is_same = openings[0].is_same(openings[1])
    if as_json:
        document = _describe((a, mine), (b, theirs), found)
        print_json({**document, "told_the_same": is_same})
    else:
        is_output = mine.kind is TraceKind.OUTPUT
        lines = list(_render(a, b, found, full=full, is_output=is_output))
        lines[2:2] = [] if is_same else ["   The two started with different inputs."]
        page(lambda: lines, is_wanted=not no_pager)
    return 0


@contextlib.contextmanager
def opened_pair(
    things: tuple[str, str], directory: str | None, part: str | None = None
) -> Iterator[tuple[FoundTrace, FoundTrace]]:
    """The traces of two things: two of actions, or two of recorded output."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(_only_trace(each, directory, part)) for each in things]
        is_output = [each.kind is TraceKind.OUTPUT for each in found]
        if any(is_output) and not all(is_output):
            # Actions cannot be compared with lines, but what both printed can.
            at = is_output.index(False)
            other = _only_trace(things[at], directory, part, only_output=True)
            found[at] = stack.enter_context(other)
        yield found[0], found[1]


@contextlib.contextmanager
def _only_trace(
    thing: str, directory: str | None, part: str | None, *, only_output: bool = False
) -> Iterator[FoundTrace]:
    """The only trace of a thing, else its recorded output."""
    with traced_trials((thing,), directory, TrialFilter(), Counter()) as trials:
        trial = _only_trial(thing, trials)
        with opened_traces(trial, with_output=True, only_output=only_output) as traces:
            if only_output and not traces:
                raise InputError(
                    f"{thing}: has a trace but no recorded output, and the other trial has only an "
                    "output; compare two traces or two outputs"
                )
            found = [trace for trace in traces if part in (None, trace.part)]
            if not found:
                raise InputError(f"{thing}: {_find_reason(trial, traces, part)}")
            if len(found) > 1:
                names = ", ".join(trace.part for trace in found)
                raise InputError(f"{thing}: a trial of several parts; choose by --part: {names}")
            yield found[0]


def _only_trial(thing: str, trials: Iterator[TracedTrial]) -> TracedTrial:
    # Kept attempts come before the trial itself, and have their own directories.
    found = list(trials)
    others = [each for each in found if not each.name.startswith(found[-1].name)]
    if others:
        names = ", ".join(each.name for each in found[:3])
        raise InputError(f"{thing}: {count_of(len(found), 'trial')}; name one, such as {names}")
    return found[-1]


def _find_reason(trial: TracedTrial, traces: list[FoundTrace], part: str | None) -> str:
    if traces:
        names = ", ".join(trace.part for trace in traces if trace.part)
        return f"no part {part!r}; {f'its parts are {names}' if names else 'it has no parts'}"
    return f"has no trace{f': {trial.problem}' if trial.problem else ''}"


def _describe(
    mine: tuple[str, FoundTrace], theirs: tuple[str, FoundTrace], found: Divergence
) -> dict[str, object]:
    sides = {
        side: {"thing": thing, "file": trace.name, "part": trace.part, "kind": str(trace.kind)}
        for side, (thing, trace) in (("a", mine), ("b", theirs))
    }
    document = msgspec.to_builtins(found)
    for place in ("action", "answer"):
        for side in ("a", "b"):
            if document[place] and document[place][side]:
                document[place][side] = {
                    key: value
                    for key, value in document[place][side].items()
                    if not key.endswith("key")
                }
    return {
        **sides,
        **document,
        "not_counted_in_answers": [name for name, _, _ in NORMALISATIONS],
    }


def _render(
    a: str, b: str, found: Divergence, *, full: bool, is_output: bool = False
) -> Iterator[str]:
    columns = shutil.get_terminal_size().columns
    noun, what = ("line", " of recorded output") if is_output else ("action", "")
    yield printable(f"A  {a}: {count_of(found.actions_a, noun)}{what}")
    yield printable(f"B  {b}: {count_of(found.actions_b, noun)}{what}")
    yield ""
    yield describe_divergence(found, is_output=is_output)
    if found.answer is not None:
        yield ""
        yield f"First different answer, to action {found.answer.number}:"
        yield from _render_sides(found.answer, columns, full=full, is_answered=True)
    if found.action is not None:
        yield ""
        yield f"First different {noun}, number {found.action.number}:"
        unit = "line" if is_output else "step"
        yield from _render_sides(found.action, columns, full=full, unit=unit)
    yield ""
    answered = "" if is_output else f" ({found.answers_differ:,} answered differently)"
    yield (
        f"In all: {found.same:,} the same{answered}, "
        f"{found.only_a:,} only in A, {found.only_b:,} only in B."
    )
    yield from _render_hunks(found, columns, full=full, unit="line" if is_output else "step")
    if found.answers_differ:
        names = ", ".join(name for name, _, _ in NORMALISATIONS)
        yield from textwrap.wrap(f"Not counted as differences of answers: {names}.", columns)


def _render_sides(
    sides: Sides, columns: int, *, full: bool, is_answered: bool = False, unit: str = "step"
) -> Iterator[str]:
    mine, theirs = (
        _render_side(side, full=full, is_answered=is_answered, unit=unit)
        for side in (sides.a, sides.b)
    )
    yield from render_beside(("A", mine), ("B", theirs), columns)


def _render_side(action: Action | None, *, full: bool, is_answered: bool, unit: str) -> list[str]:
    """An action's head and command, and its result if that is what differs."""
    if action is None:
        return ["(ends here)"]
    longest = None if full else _LONGEST
    code = "" if action.exit_code is None or not is_answered else f"  exit {action.exit_code}"
    lines = [
        printable(f"{unit} {action.step}  {action.tool}{code}"),
        *fold(action.command, longest),
    ]
    if is_answered:
        lines += ["answer:", *fold(action.answer or "", longest)]
    return lines


def _render_hunks(found: Divergence, columns: int, *, full: bool, unit: str) -> Iterator[str]:
    shown = found.hunks if full else found.hunks[:_MOST_HUNKS]
    for hunk in shown:
        line = printable(f"  {_render_hunk(hunk, unit)}")
        yield next(break_line(line, columns)) if not full else line
    if left := len(found.hunks) - len(shown):
        yield f"  … {left:,} more sections; --full lists them"
    if found.hunks_left_out:
        yield f"  … {found.hunks_left_out:,} more sections, not listed"


def _render_hunk(hunk: Hunk, unit: str) -> str:
    names = {"same": "same  ", "only_a": "only A", "only_b": "only B"}
    spans = [f"{side} {_span(span, unit)}" for side, span in (("A", hunk.a), ("B", hunk.b)) if span]
    differ = f" ({hunk.answers_differ:,} answered differently)" if hunk.answers_differ else ""
    first = " ".join(hunk.first.split())
    return f"{names[hunk.kind]}  {hunk.count:>4,}  {', '.join(spans)}{differ}  {first}".rstrip()


def _span(span: tuple[int, int], unit: str) -> str:
    return f"{unit} {span[0]}" if span[0] == span[1] else f"{unit}s {span[0]}-{span[1]}"
