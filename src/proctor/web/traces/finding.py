"""Which entries of a trace hold a text: as it stands there, small and capital letters alike.

The whole trace is read for it, piece by piece. Most pieces need no decoding: where the text has no
character that JSON spells in another way, and is not in the bytes, it is not in the entries.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from proctor.traces.entry import Entry
from proctor.traces.labels import list_thoughts
from proctor.traces.trajectory import read_pieces
from proctor.web.traces.index import TraceIndex
from proctor.web.traces.lines import Lines
from proctor.web.traces.row import find_data

MOST: Final = 10_000
"""Entries that are listed."""
LONGEST: Final = 500
_DIRECT: Final = re.compile(r"[A-Za-z0-9 _.,:;=+*()\[\]{}<>!?@#$%^&|~`'-]+")
"""Texts that stand in a file of JSON as they are."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Entries that hold a text."""

    rows: list[int]
    is_all: bool


def find_text(lines: Lines, index: TraceIndex, text: str) -> Hits:
    """The entries that hold a text, in their order, up to a bound.

    Raises:
        TraceError: the trace cannot be read.
        DamageError: what was sealed is missing or altered.
    """
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
    # A writer may spell any character as an escape: then the bytes tell nothing.
    lowered = piece.lower()
    return wanted in lowered or b"\\u00" in lowered


def _texts(entry: Entry) -> Iterator[str]:
    """All that a page shows of an entry."""
    for text in (entry.content, entry.command, entry.stdout, entry.stderr, entry.tool_name):
        if text:
            yield text
    if entry.stdout is None and entry.output_summary:
        yield entry.output_summary
    if entry.metadata:
        yield from list_thoughts(entry.metadata)
    yield from (text for _, text in find_data(entry))
