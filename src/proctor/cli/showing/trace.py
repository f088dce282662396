"""Shows a trace, or the traces of a trial below its head: as text or JSON, whole or in steps.

Without a selection, a trajectory is shown as in its file, with the problems of each line in place.
With one, only matching steps are shown, and the number of unreadable lines is reported at the end.
Trajectories of any size are read in constant memory.
"""

import contextlib
import importlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

import msgspec

from proctor.cli.options import check_apart, check_unused
from proctor.cli.output import page, print_json
from proctor.cli.showing.options import Selection, ShowOptions
from proctor.cli.showing.text import LONGEST, render_entry, render_header, render_turn
from proctor.cli.stdout import print_stderr
from proctor.diagnostic import Diagnostic
from proctor.errors import InputError
from proctor.sentence import count_of, printable
from proctor.traces.conversation import read_turns
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.trajectory import Chunk, read_chunks, read_steps
from proctor.traces.turn import Turn, turns_to_entries

# Entries that are grouped into one step; a larger step is split.
_MOST_OF_A_STEP = 1000


@dataclass(frozen=True, slots=True)
class Source:
    """A readable trace."""

    kind: TraceKind
    path: str
    """Its path."""
    name: str
    """Its name in the output."""
    part: str = ""
    """The part of a trial with several steps; "" for the trial itself."""
    passed_over: tuple[str, ...] = ()
    """Files with precedence that were not used, and why."""
    steps: Iterable[Chunk] | None = None
    """The selected steps, if they were found already."""


@dataclass(slots=True)
class View:
    """How traces are shown, and counts of what was shown."""

    selection: Selection
    is_full: bool = False
    width: int | None = field(
        default_factory=lambda: shutil.get_terminal_size().columns if os.isatty(1) else None
    )
    shown: int = 0
    """Shown entries."""
    unread: int = 0
    """Problems of lines that are not entries."""

    @property
    def longest(self) -> int | None:
        """Characters of a text, at most; None: no limit."""
        return None if self.is_full else LONGEST


type Sources = Callable[[], contextlib.AbstractContextManager[list[Source]]]
"""Opens the traces of a trial for reading."""


def show_trace(path: str, kind: TraceKind, options: ShowOptions) -> None:
    """Print a trace in a file."""
    check_unused("a trace", raw=options.raw, part=options.selection.part, changes=options.changes)
    check_apart("full", "as_json")
    source = Source(kind, path, path)
    if options.as_json:
        view = View(options.selection, options.full)
        print_json(describe_trace(source, view))
        warn_if_empty(path, view)
    else:
        show_traces(path, lambda: contextlib.nullcontext([source]), options, is_lone=True)


def show_traces(
    name: str,
    sources: Sources,
    options: ShowOptions,
    head: Callable[[], Iterable[str]] = tuple,
    tail: Callable[[], Iterable[str]] = tuple,
    *,
    is_lone: bool = False,
) -> None:
    """Print the traces of a trial, with a note if there is none or no step matches.

    `head` and `tail` make the lines around them, which are omitted if steps are selected. A trace
    that `is_lone` needs no title.
    """
    view, has_traces = View(options.selection, options.full), False

    def lines() -> Iterator[str]:
        nonlocal view, has_traces
        view = View(options.selection, options.full)
        if view.selection.is_all:
            yield from head()
        with sources() as found:
            has_traces = bool(found)
            for source in choose_part(name, found, options.selection.part):
                rendered = render_trace(source, view)
                # A title without content below it would be misleading.
                if not is_lone and (first := next(rendered, None)) is not None:
                    part = f"part {source.part}, " if source.part else ""
                    yield from ["", printable(f"{part}{source.name} ({source.kind})"), first]
                yield from rendered
        if view.selection.is_all and (last := list(tail())):
            yield from ["", *last]

    page(lines, is_wanted=options.paged)
    if has_traces:
        warn_if_empty(name, view)
    elif not view.selection.is_all:
        print_stderr(f"proctor: {printable(name)}: has no trace")


def choose_part(name: str, sources: list[Source], part: str | None) -> list[Source]:
    """The traces of one part of a trial, or all of them.

    Raises:
        InputError: there is no such step.
    """
    chosen = [source for source in sources if part in (None, source.part)]
    if sources and not chosen:
        names = ", ".join(source.part for source in sources if source.part)
        there = f"its parts are {names}" if names else "it has no parts"
        raise InputError(f"{name}: no part {part!r}; {there}")
    return chosen


def warn_if_empty(name: str, view: View) -> None:
    """Report that no step matches, if steps were selected."""
    if not view.shown and not view.selection.is_all:
        print_stderr(f"proctor: {printable(name)}: no step matches")


def describe_traces(
    name: str, sources: Sources, options: ShowOptions, view: View
) -> list[dict[str, object]]:
    """The traces of a trial as JSON objects, or those of one part."""
    with sources() as found:
        return [
            {"part": source.part, **describe_trace(source, view)}
            for source in choose_part(name, found, options.selection.part)
        ]


def render_trace(source: Source, view: View) -> Iterator[str]:
    """Render a trace in lines."""
    for sentence in source.passed_over:
        yield printable(f"[skipped: {sentence}]")
    if view.selection.is_all:
        yield from _RENDER[source.kind](source, view)
        return
    before = view.unread
    for group in read_groups(source, view):
        for entry, problems in group:
            yield from map(_render_problem, problems)
            yield from render_entry(entry, view.width, longest=view.longest)
    if unread := view.unread - before:
        what = count_of(unread, "line")
        yield printable(f"[{source.name}: {what} could not be read; `proctor check` says why]")


type EntryProblems = tuple[Entry, list[Diagnostic]]
"""An entry, and the problems of its line."""


def read_groups(source: Source, view: View) -> Iterator[list[EntryProblems]]:
    """The selected steps, each as a list of its entries."""
    wants, last = view.selection.wants, view.selection.last
    for _, entries in groupby(_entries(source, view), key=lambda pairs: pairs[0].step):
        while group := list(islice(entries, _MOST_OF_A_STEP)):
            if wants([entry for entry, _ in group]):
                view.shown += len(group)
                yield group
            if source.kind is TraceKind.CONVERSATION and group[0][0].step >= last:
                return  # steps of a conversation are in order, so that no earlier one follows


def _entries(source: Source, view: View) -> Iterator[EntryProblems]:
    match source.kind:
        case TraceKind.TRAJECTORY | TraceKind.OUTPUT:
            yield from _with_problems(_chunks(source, view), view)
        case TraceKind.CONVERSATION:
            turns = _turns(read_turns(source.path, salvage=True), view)
            yield from ((entry, []) for entry in turns_to_entries(turns))
        case TraceKind.ATIF:
            trace = _load(source.path, source.kind)
            view.unread += sum(each.is_problem for each in trace.diagnostics)
            yield from ((entry, []) for entry in trace.entries)


def _chunks(source: Source, view: View) -> Iterable[Chunk]:
    if source.steps is not None:
        return source.steps
    if view.selection.steps is not None:
        return read_steps(source.path, *view.selection.steps)
    return read_chunks(source.path, salvage=True)


def _with_problems(chunks: Iterable[Chunk], view: View) -> Iterator[EntryProblems]:
    for chunk in chunks:
        by_line: dict[int | None, list[Diagnostic]] = {}
        for found in chunk.diagnostics:
            by_line.setdefault(found.line, []).append(found)
        for entry, line in zip(chunk.entries, chunk.lines, strict=True):
            yield entry, by_line.pop(line, [])
        view.unread += sum(each.is_problem for found in by_line.values() for each in found)


def _turns(items: Iterable[Turn | Diagnostic], view: View) -> Iterator[Turn]:
    for item in items:
        if isinstance(item, Turn):
            yield item
        else:
            view.unread += item.is_problem


def describe_trace(source: Source, view: View) -> dict[str, object]:
    """A trace as one JSON object."""
    if view.selection.is_all:
        trace = _load(source.path, source.kind)
        view.shown += len(trace.entries) + len(trace.turns)
        found = {
            "entries": [msgspec.to_builtins(entry) for entry in trace.entries],
            "turns": [msgspec.to_builtins(turn) for turn in trace.turns],
            "diagnostics": [msgspec.to_builtins(each) for each in trace.diagnostics],
        }
    else:
        pairs = [pair for group in read_groups(source, view) for pair in group]
        found = {
            "entries": [msgspec.to_builtins(entry) for entry, _ in pairs],
            "turns": [],
            "diagnostics": [msgspec.to_builtins(each) for _, noticed in pairs for each in noticed],
        }
    return {"thing": str(source.kind), "path": source.name, **found}


def _render_trajectory(source: Source, view: View) -> Iterator[str]:
    for chunk in read_chunks(source.path, salvage=True):
        yield from map(render_header, chunk.headers)
        # Render entries, each after the problems up to its line.
        noticed = deque(chunk.diagnostics)
        for line, entry in zip(chunk.lines, chunk.entries, strict=True):
            while noticed and (noticed[0].line or 0) <= line:
                yield _render_problem(noticed.popleft())
            view.shown += 1
            yield from render_entry(entry, view.width, longest=view.longest)
        yield from map(_render_problem, noticed)


def _render_conversation(source: Source, view: View) -> Iterator[str]:
    step = 0
    for found in read_turns(source.path, salvage=True):
        if isinstance(found, Turn):
            begins = found.role == "assistant"
            step += begins
            view.shown += 1
            number = step if begins else None
            yield from render_turn(found, view.width, longest=view.longest, step=number)
        else:
            yield _render_problem(found)


def _render_atif(source: Source, view: View) -> Iterator[str]:
    trace = _load(source.path, TraceKind.ATIF)
    yield from map(_render_problem, trace.diagnostics)
    for entry in trace.entries:
        view.shown += 1
        yield from render_entry(entry, view.width, longest=view.longest)


def _load(path: str, kind: TraceKind) -> Any:
    """Load a whole trace. Imported late: ATIF is slow to import."""
    return importlib.import_module("proctor.traces.trace").load_trace_file(path, kind)


def _render_problem(found: Diagnostic) -> str:
    return printable(f"[{found}]")


_RENDER = {
    TraceKind.TRAJECTORY: _render_trajectory,
    TraceKind.CONVERSATION: _render_conversation,
    TraceKind.ATIF: _render_atif,
    TraceKind.OUTPUT: _render_trajectory,
}
