"""Find the entries of a trace that match a filter, or contain a text, ignoring case.

The whole trace is read, piece by piece. Most pieces need no decoding: if the text has no character
that JSON escapes, and is not in the bytes, it is not in the entries.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from proctor.traces.entry import Entry
from proctor.traces.labels import list_thoughts
from proctor.traces.trajectory import read_pieces
from proctor.web.traces.index import TraceIndex
from proctor.web.traces.lines import Lines
from proctor.web.traces.rows import find_data

MOST: Final = 10_000
"""Most entries that are listed."""
LONGEST: Final = 500
# Texts that appear in JSON unescaped.
_DIRECT: Final = re.compile(r"[A-Za-z0-9 _.,:;=+*()\[\]{}<>!?@#$%^&|~`'-]+")


@dataclass(frozen=True, slots=True)
class Hits:
    """Entries that contain a text."""

    rows: list[int]
    is_all: bool


def find_text(lines: Lines, index: TraceIndex, text: str) -> Hits:
    """Find the entries that contain a text, in order, up to a limit."""
    wanted = text.lower()
    direct = wanted.encode() if _DIRECT.fullmatch(wanted) else None
    found: list[int] = []
    number = 0
    for span, piece in lines.pieces():
        if not isinstance(piece, bytes):
            continue
        if direct is not None and not _may_hold(piece, direct):
            number = index.next_after(span)
            continue
        for chunk in read_pieces([(span.line, piece)]):
            for entry in chunk.entries:
                if any(wanted in each.lower() for each in _texts(entry)):
                    if len(found) >= MOST:
                        return Hits(found, is_all=False)
                    found.append(number)
                number += 1
    return Hits(found, is_all=True)


def _may_hold(piece: bytes, wanted: bytes) -> bool:
    # JSON allows any character to be escaped; if there are escapes, the bytes prove nothing.
    lowered = piece.lower()
    return wanted in lowered or b"\\u00" in lowered


def _texts(entry: Entry) -> Iterator[str]:
    """All texts that a page shows of an entry."""
    for text in (entry.content, entry.command, entry.stdout, entry.stderr, entry.tool_name):
        if text:
            yield text
    if entry.stdout is None and entry.output_summary:
        yield entry.output_summary
    if entry.metadata:
        yield from list_thoughts(entry.metadata)
    yield from (text for _, text in find_data(entry))


@dataclass(frozen=True, slots=True)
class Choice:
    """A filter; "" matches everything."""

    role: str = ""
    tool: str = ""
    errors: bool = False
    """Only steps with an error, with all their entries."""

    @property
    def is_all(self) -> bool:
        """Whether everything matches."""
        return not (self.role or self.tool or self.errors)


def choose(index: TraceIndex, choice: Choice) -> Sequence[int]:
    """The numbers of the matching entries."""
    if choice.is_all:
        return range(len(index))
    rows: Sequence[int] = _in_wrong_steps(index) if choice.errors else range(len(index))
    if choice.role:
        role, roles = index.role_names.find(choice.role), index.roles
        rows = array("I", [row for row in rows if roles[row] == role])
    if choice.tool:
        tool, tools = index.tool_names.find(choice.tool), index.tools
        rows = array("I", [row for row in rows if tools[row] == tool])
    return rows


def _in_wrong_steps(index: TraceIndex) -> Sequence[int]:
    wrong = set(index.errors)
    found = array("I")
    for _, group in groupby(range(len(index)), key=index.steps.__getitem__):
        rows = list(group)
        if not wrong.isdisjoint(rows):
            found.extend(rows)
    return found


def find_position(chosen: Sequence[int], row: int) -> int:
    """The position of an entry among the selected ones, or of the next one."""
    return min(bisect_left(chosen, row), max(len(chosen) - 1, 0))
