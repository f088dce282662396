"""The traces of a trial's parts: of the files that can be one, the first with anything in it.

A file that has nothing does not hide the next one; what was passed over is said.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from proctor.errors import TraceError
from proctor.traced.candidates import Part
from proctor.trajectory.conversation import read_turns
from proctor.trajectory.kind import TraceKind
from proctor.trajectory.read import has_entries
from proctor.trajectory.turn import Turn

type Opened = contextlib.AbstractContextManager[str]
"""Gives the path under which a file of the trial can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTrace:
    """One trace of a trial, readable as long as it is open."""

    part: str
    """The step of a trial of several; "" for the trial itself."""
    kind: TraceKind
    name: str
    """Which of the trial's files it is."""
    path: str
    """Where it can be read now."""
    passed_over: tuple[str, ...]
    """Which files went before it and were not used, and why."""


def open_parts(
    parts: Iterable[Part], open_file: Callable[[str], Opened], stack: contextlib.ExitStack
) -> Iterator[FoundTrace]:
    """The trace of each part that has one; the stack closes their files.

    Raises:
        DamageError: sealed evidence is missing or altered.
    """
    for part in parts:
        found = _find_usable(part, open_file, stack)
        if found is not None:
            yield found


def _find_usable(
    part: Part, open_file: Callable[[str], Opened], stack: contextlib.ExitStack
) -> FoundTrace | None:
    passed_over: list[str] = []
    for kind, name in part.candidates:
        path = stack.enter_context(open_file(name))
        try:
            usable = _is_usable(kind, path)
        except TraceError as error:
            passed_over.append(str(error).replace(path, name))
            continue
        if usable:
            return FoundTrace(
                part=part.name, kind=kind, name=name, path=path, passed_over=tuple(passed_over)
            )
        passed_over.append(f"{name}: nothing usable in it")
    return None


def _is_usable(kind: TraceKind, path: str) -> bool:
    """Whether there is anything in a file; of lines, no more is read than shows it."""
    match kind:
        case TraceKind.TRAJECTORY:
            return has_entries(path)
        case TraceKind.CONVERSATION:
            return any(isinstance(item, Turn) for item in read_turns(path, salvage=True))
        case TraceKind.ATIF:
            # What reads ATIF is slow to load, and most trials have none.
            loader = importlib.import_module("proctor.trajectory.trace")
            return bool(loader.load_trace_file(path, kind).is_usable)
