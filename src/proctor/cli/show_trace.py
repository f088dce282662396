"""A trace as the lines of `proctor show`, or as JSON: all of it, or the steps that are wanted.

Without a selection a trajectory is shown as it stands in its file, with what is wrong with a line
where the line is. With one, only steps that fit are shown; how many lines could not be read is said
at the end. A trajectory of any size is read in constant memory.
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

from proctor.cli.printable import printable
from proctor.cli.selection import Selection
from proctor.cli.trace_text import LONGEST, render_entry, render_header, render_turn
from proctor.diagnostic import Diagnostic
from proctor.sentence import count_of
from proctor.traces.conversation import read_turns
from proctor.traces.entry import Entry, TraceKind
from proctor.traces.step_search import read_steps
from proctor.traces.trajectory import Chunk, read_chunks
from proctor.traces.turn import Turn, turns_to_entries

_MOST_OF_A_STEP = 1000
"""Entries that are looked at together; a step with more is looked at in several pieces."""


@dataclass(frozen=True, slots=True)
class Source:
    """One trace that can be read now."""

    kind: TraceKind
    path: str
    """Where it can be read."""
    name: str
    """What people call it."""
    part: str = ""
    """The step of a trial of several; "" for the trial itself."""
    passed_over: tuple[str, ...] = ()
    """Files that went before it and were not used, and why."""
    steps: Iterable[Chunk] | None = None
    """The steps wanted, where they were found already."""


@dataclass(slots=True)
class View:
    """How traces are shown, and what came of it."""

    selection: Selection
    is_full: bool = False
    width: int | None = field(default_factory=lambda: _width())
    shown: int = 0
    """Entries that were."""
    unread: int = 0
    """Problems of lines that are no entry."""

    @property
    def longest(self) -> int | None:
        """Characters of one text; None for all of them."""
        return None if self.is_full else LONGEST


def _width() -> int | None:
    return shutil.get_terminal_size().columns if os.isatty(1) else None


def render_trace(source: Source, view: View) -> Iterator[str]:
    """Lines of a trace, ready to be printed.

    Raises:
        TraceError: it cannot be read.
    """
    for sentence in source.passed_over:
        yield printable(f"[passed over: {sentence}]")
    if view.selection.is_all:
        yield from _RENDER[source.kind](source, view)
        return
    before = view.unread
    for group in find_groups(source, view):
        for entry, problems in group:
            yield from map(_render_problem, problems)
            yield from render_entry(entry, view.width, longest=view.longest)
    if unread := view.unread - before:
        what = count_of(unread, "line")
        yield printable(f"[{source.name}: {what} could not be read; `proctor check` says why]")


type Told = tuple[Entry, list[Diagnostic]]
"""An entry, and what is wrong with its line."""


def find_groups(source: Source, view: View) -> Iterator[list[Told]]:
    """The steps that are wanted, each as its entries."""
    wants, last = view.selection.wants, view.selection.last
    for _, entries in groupby(_entries(source, view), key=lambda told: told[0].step):
        while group := list(islice(entries, _MOST_OF_A_STEP)):
            if wants([entry for entry, _ in group]):
                view.shown += len(group)
                yield group
            if source.kind is TraceKind.CONVERSATION and group[0][0].step >= last:
                return  # steps of a conversation are counted, so no earlier one comes after


def _entries(source: Source, view: View) -> Iterator[Told]:
    match source.kind:
        case TraceKind.TRAJECTORY:
            yield from _told(_chunks(source, view), view)
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


def _told(chunks: Iterable[Chunk], view: View) -> Iterator[Told]:
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
    """The same as one JSON object."""
    if view.selection.is_all:
        trace = _load(source.path, source.kind)
        view.shown += len(trace.entries) + len(trace.turns)
        found = {
            "entries": [msgspec.to_builtins(entry) for entry in trace.entries],
            "turns": [msgspec.to_builtins(turn) for turn in trace.turns],
            "diagnostics": [msgspec.to_builtins(each) for each in trace.diagnostics],
        }
    else:
        told = [pair for group in find_groups(source, view) for pair in group]
        found = {
            "entries": [msgspec.to_builtins(entry) for entry, _ in told],
            "turns": [],
            "diagnostics": [msgspec.to_builtins(each) for _, noticed in told for each in noticed],
        }
    return {"thing": str(source.kind), "path": source.name, **found}


def _render_trajectory(source: Source, view: View) -> Iterator[str]:
    for chunk in read_chunks(source.path, salvage=True):
        yield from map(render_header, chunk.headers)
        yield from _render_chunk(chunk, view)


def _render_chunk(chunk: Chunk, view: View) -> Iterator[str]:
    """Entries, and before each what was noticed up to its line."""
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
    """The whole trace. What reads ATIF is slow to load, and most need only a step of lines."""
    return importlib.import_module("proctor.traces.trace").load_trace_file(path, kind)


def _render_problem(found: Diagnostic) -> str:
    return printable(f"[{found}]")


_RENDER = {
    TraceKind.TRAJECTORY: _render_trajectory,
    TraceKind.CONVERSATION: _render_conversation,
    TraceKind.ATIF: _render_atif,
}
