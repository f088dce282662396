"""A trace or a record in a file, for `proctor show`."""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from proctor.audit.things import Thing, find_thing
from proctor.cli.options import check_apart, check_unused
from proctor.cli.output import print_json, print_line
from proctor.cli.printable import printable
from proctor.cli.record_text import render_record_text
from proctor.cli.stdout import send, send_bytes
from proctor.cli.trace_text import LONGEST, render_entry, render_header, render_turn
from proctor.diagnostic import Diagnostic
from proctor.errors import InputError
from proctor.files import read_small
from proctor.record.completeness import find_missing
from proctor.record.read import load_record
from proctor.trajectory.conversation import read_turns
from proctor.trajectory.entry import Entry
from proctor.trajectory.read import Chunk, read_chunks
from proctor.trajectory.trace import TRIAL_TRACES, TraceKind, load_trace_file
from proctor.trajectory.turn import Turn


@dataclass(frozen=True, slots=True)
class Wish:
    """How a file is to be shown."""

    step: int | None
    full: bool
    raw: bool
    as_json: bool


def show(thing: str, wish: Wish) -> None:
    """Print a trace or a record.

    Raises:
        InputError: it is neither, or cannot be read.
        UsageError: an option means nothing for it.
    """
    kind = find_thing(thing)
    if kind is Thing.RECORD:
        check_unused("a record", step=wish.step, full=wish.full)
        check_apart("raw", "as_json")
        _show_record(thing, raw=wish.raw, as_json=wish.as_json)
        return
    if kind not in _RENDER:
        raise InputError(f"{thing}: a {kind}; expected a trace or a trial record{_inside(thing)}")
    check_unused("a trace", raw=wish.raw)
    if kind is Thing.CONVERSATION:
        check_unused("a conversation, which has no steps", step=wish.step)
    check_apart("full", "as_json")
    view = _View(wish.step, None if wish.full else LONGEST)
    if wish.as_json:
        print_json(_describe_trace(thing, kind, view))
    else:
        for line in _RENDER[kind](thing, view):
            send(line)


def _inside(directory: str) -> str:
    """What of a trial can be shown, for somebody who named the trial itself."""
    names = ["record.json", *(name for _, name in TRIAL_TRACES)]
    found = [Path(directory, name) for name in names]
    there = [str(path) for path in found if path.is_file()]
    return f", such as {' or '.join(there)}" if there else ""


@dataclass(frozen=True, slots=True)
class _View:
    """What of a trace is wanted."""

    step: int | None
    longest: int | None
    """Characters of a text; None for all of them."""

    def entry(self, entry: Entry) -> list[str]:
        """Lines of an entry, none if it is not wanted."""
        if self.step not in (None, entry.step):
            return []
        return render_entry(entry, _width(), longest=self.longest)


def _width() -> int | None:
    return shutil.get_terminal_size().columns if os.isatty(1) else None


def _show_record(path: str, *, raw: bool, as_json: bool) -> None:
    if raw:
        send_bytes(_read(path))
        return
    loaded = load_record(Path(path), salvage=True)
    if as_json:
        print_json(
            {
                "thing": str(Thing.RECORD),
                "path": path,
                "generation": loaded.generation,
                "record": loaded.record.model_dump(mode="json"),
                "missing": [msgspec.to_builtins(each) for each in find_missing(loaded.record)],
                "diagnostics": [msgspec.to_builtins(each) for each in loaded.diagnostics],
            }
        )
        return
    for line in render_record_text(loaded):
        print_line(line)


def _read(path: str) -> bytes:
    try:
        return read_small(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def _describe_trace(path: str, kind: Thing, view: _View) -> dict[str, object]:
    trace = load_trace_file(path, TraceKind(str(kind)))
    entries = [entry for entry in trace.entries if view.step in (None, entry.step)]
    return {
        "thing": str(kind),
        "path": path,
        "entries": [msgspec.to_builtins(entry) for entry in entries],
        "turns": [msgspec.to_builtins(turn) for turn in trace.turns],
        "diagnostics": [msgspec.to_builtins(each) for each in trace.diagnostics],
    }


def _render_trajectory(path: str, view: _View) -> Iterator[str]:
    for chunk in read_chunks(path, salvage=True):
        yield from map(render_header, chunk.headers)
        yield from _render_chunk(chunk, view)


def _render_chunk(chunk: Chunk, view: _View) -> Iterator[str]:
    """Entries, and before each what was noticed up to its line."""
    noticed = deque(chunk.diagnostics)
    for line, entry in zip(chunk.lines, chunk.entries, strict=True):
        while noticed and (noticed[0].line or 0) <= line:
            yield _render_problem(noticed.popleft())
        yield from view.entry(entry)
    yield from map(_render_problem, noticed)


def _render_conversation(path: str, view: _View) -> Iterator[str]:
    for found in read_turns(path, salvage=True):
        if isinstance(found, Turn):
            yield from render_turn(found, _width(), longest=view.longest)
        else:
            yield _render_problem(found)


def _render_atif(path: str, view: _View) -> Iterator[str]:
    trace = load_trace_file(path, TraceKind.ATIF)
    yield from map(_render_problem, trace.diagnostics)
    for entry in trace.entries:
        yield from view.entry(entry)


def _render_problem(found: Diagnostic) -> str:
    return printable(f"[{found}]")


_RENDER: dict[Thing, Callable[[str, _View], Iterator[str]]] = {
    Thing.TRAJECTORY: _render_trajectory,
    Thing.CONVERSATION: _render_conversation,
    Thing.ATIF: _render_atif,
}
