"""Read some entries of a trace, one piece of the file for each run of them."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import ChangedTraceError
from proctor.traces.entry import Entry
from proctor.traces.times import read_timestamp
from proctor.traces.trajectory import Chunk, read_pieces
from proctor.web.traces.index import TraceIndex
from proctor.web.traces.labels import Labels
from proctor.web.traces.lines import Lines
from proctor.web.traces.row import Row, Showing, make_row

# Characters after which no more rows are returned; the client requests the rest.
_ENOUGH: Final = 3_000_000
_MOST_NOTES: Final = 20
# Entries among which the beginning of a trace is searched.
_FIRST_ENTRIES: Final = 20

type _NumberedEntry = tuple[int, Entry, list[str]]


def read_beginning(lines: Lines, count: int, showing: Showing) -> list[Row]:
    """Read the first entries of a trace that is not indexed yet."""
    found: list[Row] = []
    before: int | None = None
    for span, piece in lines.pieces():
        if isinstance(piece, Diagnostic):
            continue
        chunks = read_pieces([(span.line, piece)])
        for number, entry, notes in _number_entries(chunks, len(found)):
            row = make_row(entry, number, showing, notes=notes)
            found.append(msgspec.structs.replace(row, is_first=row.step != before))
            before = row.step
            if len(found) >= count:
                return found
    return found


def find_start(lines: Lines) -> str | None:
    """The first timestamp among the first entries of a trace."""
    looked = 0
    for span, piece in lines.pieces():
        if isinstance(piece, Diagnostic):
            continue
        for _, entry, _ in _number_entries(read_pieces([(span.line, piece)]), 0):
            if entry.timestamp and read_timestamp(entry.timestamp):
                return entry.timestamp
            looked += 1
            if looked >= _FIRST_ENTRIES:
                return None
    return None


def read_rows(
    lines: Lines,
    index: TraceIndex,
    wanted: Sequence[int],
    showing: Showing,
    labels: Labels | None = None,
    enough: int = _ENOUGH,
) -> list[Row]:
    """Read the entries with these ascending numbers, up to `enough` characters."""
    found: list[Row] = []
    size = 0
    for number, entry, notes in _read(lines, index, wanted):
        row = make_row(entry, number, showing, notes=notes)
        is_first = index.is_first(number)
        label = labels.find(index.steps[number]) if labels is not None and is_first else None
        found.append(msgspec.structs.replace(row, is_first=is_first, label=label))
        size += sum(len(text.folded.text) + len(text.folded.end) for text in row.texts)
        if size > enough:
            break
    return found


def read_some(lines: Lines, index: TraceIndex, wanted: Sequence[int]) -> Iterator[Entry]:
    """Read the entries with these ascending numbers, unconverted."""
    return (entry for _, entry, _ in _read(lines, index, wanted))


def _read(lines: Lines, index: TraceIndex, wanted: Sequence[int]) -> Iterator[_NumberedEntry]:
    left = deque(wanted)
    while left:
        span, first = next(iter(index.spans(left[0], 1)))
        chunks = list(read_pieces([(span.line, lines.read(span))]))
        last = first + sum(len(chunk.entries) for chunk in chunks)
        if not first <= left[0] < last:
            raise ChangedTraceError("the trace is being written; load the page again")
        for each in _number_entries(chunks, first):
            if left and each[0] == left[0]:
                left.popleft()
                yield each


def _number_entries(chunks: Iterable[Chunk], number: int) -> Iterator[_NumberedEntry]:
    """Entries with their numbers, and the problems up to the line of each."""
    for chunk in chunks:
        noticed = deque(each for each in chunk.diagnostics if each.is_problem)
        for entry, line in zip(chunk.entries, chunk.lines, strict=True):
            notes: list[str] = []
            while noticed and (noticed[0].line or 0) <= line:
                notes.append(str(noticed.popleft()))
            if len(notes) > _MOST_NOTES:
                notes[_MOST_NOTES:] = [f"… {len(notes) - _MOST_NOTES:,} more lines like these"]
            yield number, entry, notes
            number += 1
