"""Renders a trace for `proctor show`, or as JSON: all of it, or selected steps.

Without a selection, a trajectory is shown as in its file, with the problems of each line in place.
With one, only matching steps are shown, and the number of unreadable lines is reported at the end.
Trajectories of any size are read in constant memory.
"""

import importlib
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import Any

import msgspec

from proctor.cli.selection import Selection
from proctor.cli.trace_text import LONGEST, render_entry, render_header, render_turn
from proctor.diagnostic import Diagnostic
from proctor.sentence import count_of, printable
from proctor.traces.conversation import read_turns
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.step_search import read_steps
from proctor.traces.trajectory import Chunk, read_chunks
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
    width: int | None = field(default_factory=lambda: _width())
    shown: int = 0
    """Shown entries."""
    unread: int = 0
    """Problems of lines that are not entries."""

    @property
    def longest(self) -> int | None:
        """Characters of a text, at most; None: no limit."""
        return None if self.is_full else LONGEST


def _width() -> int | None:
    return shutil.get_terminal_size().columns if os.isatty(1) else None


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
        yield from _render_chunk(chunk, view)


def _render_chunk(chunk: Chunk, view: View) -> Iterator[str]:
    """Render entries, each after the problems up to its line."""
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
