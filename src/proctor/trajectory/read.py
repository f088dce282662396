"""Reading trajectory.jsonl: all three generations, strictly or keeping what can be kept.

    for chunk in read_chunks(path):          strict: the first problem is a TraceError
    for chunk in read_chunks(path, salvage=True):
        chunk.entries, chunk.diagnostics     what is good, and what was noticed

Memory does not grow with the file. A chunk is decoded in one go; only when that fails, or when
`thorough` asks for it, is it read again line by line (see careful.py), so that each problem has
its line. What only a thorough reading sees: duplicate keys (the last one wins, as in every JSON
reader) and everything that is worth a note but breaks nothing. docs/traces.md has the whole table.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.trajectory.careful import CarefulReader, Found, Kept
from proctor.trajectory.entry import Entry, Header, UsualHeader
from proctor.trajectory.lines import LINE_LIMIT, OpenTrace, Oversized, sift

_ENTRY = msgspec.json.Decoder(Entry)
_OPENING, _CLOSING = b"{}"
_HEADER = msgspec.json.Decoder(UsualHeader)
_REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_BEGINNING = 1 << 12
"""Bytes that show as a rule whether there is an entry in a file."""


class Chunk(msgspec.Struct, frozen=True):
    """Some lines of a file, in their order."""

    entries: list[Entry]
    lines: Sequence[int]
    """The line of each entry, counted from 1."""
    headers: list[Header] = []
    diagnostics: list[Diagnostic] = []
    kept: list[Kept] = []
    """What lines hold beyond their entries."""


class Trajectory(msgspec.Struct, frozen=True):
    """A whole file, for those that are small enough to hold."""

    path: str
    entries: list[Entry]
    lines: list[int]
    """The line of each entry, counted from 1."""
    headers: list[Header]
    diagnostics: list[Diagnostic]
    kept: list[Kept]


def load_trajectory(path: str, *, salvage: bool = False, thorough: bool = False) -> Trajectory:
    """The whole file.

    Raises:
        TraceError: it cannot be read; unless salvaging, also the first problem in it.
    """
    whole = Trajectory(path, [], [], [], [], [])
    for chunk in read_chunks(path, salvage=salvage, thorough=thorough):
        whole.entries.extend(chunk.entries)
        whole.lines.extend(chunk.lines)
        whole.headers.extend(chunk.headers)
        whole.diagnostics.extend(chunk.diagnostics)
        whole.kept.extend(chunk.kept)
    return whole


def read_chunks(
    path: str, *, salvage: bool = False, thorough: bool = False, line_limit: int = LINE_LIMIT
) -> Iterator[Chunk]:
    """The file's entries, many at a time.

    Raises:
        TraceError: it cannot be read; unless salvaging, also the first problem in it.
    """
    trace = OpenTrace(path, line_limit)
    try:
        for chunk in _Reading(thorough=thorough).chunks(trace):
            if not salvage:
                _check(path, chunk.diagnostics)
            yield chunk
    finally:
        trace.close()


def has_entries(path: str) -> bool:
    """Whether there is an entry that a salvaging reading keeps; no more is read than shows it.

    Raises:
        TraceError: it cannot be read.
    """
    for span in ((0, _BEGINNING), None):
        trace = OpenTrace(path, LINE_LIMIT, span)
        try:
            if any(chunk.entries for chunk in _Reading(thorough=False).chunks(trace)):
                return True
        finally:
            trace.close()
    return False


def read_pieces(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Chunk]:
    """The entries of pieces of a file, each given with the number of its first line; salvaged."""
    for line, piece in pieces:
        yield from _Reading(thorough=False, line=line).sifted(piece)


def _check(path: str, diagnostics: list[Diagnostic]) -> None:
    for found in diagnostics:
        if found.is_problem:
            at = path if found.line is None else f"{path}:{found.line}"
            raise TraceError(f"{at}: {found.message}")


class _Reading:
    """How far one reading of a file has come."""

    def __init__(self, *, thorough: bool, line: int = 1) -> None:
        self._thorough = thorough
        self._careful = CarefulReader(thorough=thorough)
        self._line = line

    def chunks(self, trace: OpenTrace) -> Iterator[Chunk]:
        for piece in trace.pieces():
            if isinstance(piece, Oversized):
                yield self._step_over(piece)
            else:
                yield from self.read(piece)
        if noticed := trace.find_changes():
            yield Chunk([], [], diagnostics=noticed)

    def sifted(self, piece: bytes) -> Iterator[Chunk]:
        """Whole lines that come from elsewhere than an open file."""
        for part in sift(piece, 0, len(piece)):
            yield from [self._step_over(part)] if isinstance(part, Oversized) else self.read(part)

    def _step_over(self, line: Oversized) -> Chunk:
        noticed = line.describe(self._line)
        self._line += 1
        return Chunk([], [], diagnostics=[noticed])

    def read(self, piece: bytes) -> Iterator[Chunk]:
        if self._line == 1 and not self._thorough:
            # The usual header is taken off first, so that it does not make the whole chunk slow.
            end = piece.find(b"\n") + 1
            if header := _decode_header(piece[:end]):
                yield Chunk([], [], [header])
                self._careful.headed = True
                self._line, piece = 2, piece[end:]
        if not piece:
            return
        entries = None if self._thorough else _decode(piece)
        if entries is None:
            yield self._read_slowly(piece)
            return
        first, self._line = self._line, self._line + len(entries)
        yield Chunk(entries, range(first, self._line))

    def _read_slowly(self, piece: bytes) -> Chunk:
        if not piece.strip():
            self._line += piece.count(b"\n")
            return Chunk([], [])
        ended = piece.endswith(b"\n")
        texts = (piece[:-1] if ended else piece).split(b"\n")
        entries: list[Entry] = []
        lines: list[int] = []
        chunk = Chunk(entries, lines, [], [], [])
        for at, text in enumerate(texts, 1):
            found = self._read_line(text, torn=not ended and at == len(texts))
            if found.entry is not None:
                entries.append(found.entry)
                lines.append(self._line)
            if found.header is not None:
                chunk.headers.append(found.header)
            if found.kept is not None:
                chunk.kept.append(found.kept)
            chunk.diagnostics.extend(found.diagnostics)
            self._line += 1
        return chunk

    def _read_line(self, text: bytes, *, torn: bool) -> Found:
        if not self._thorough:
            with contextlib.suppress(*_REFUSALS):
                return Found(_ENTRY.decode(text))
        return self._careful.read(text, self._line, torn=torn)


def _decode_header(line: bytes) -> Header | None:
    """The header a line is, if it is one of the usual kind."""
    if b'"format"' not in line:
        return None
    try:
        header = _HEADER.decode(line)
    except _REFUSALS:
        return None
    return Header(header.version, header.format, header.timestamp)


def _decode(piece: bytes) -> list[Entry] | None:
    """The entries of a piece, if every line of it is exactly one."""
    try:
        entries = _ENTRY.decode_lines(piece)
    except _REFUSALS:
        return None
    return entries if _count_lines(piece) == len(entries) else None


def _count_lines(piece: bytes) -> int | None:
    """How many lines there are, if each holds whole objects; None if one is cut or blank.

    The decoder would also take two objects on one line and one object over two. Where every line
    end stands between a closing and an opening brace, it stands between two objects.
    """
    if not piece.startswith(b"{") or not piece.endswith(b"}\n"):
        return None
    lines, find = 1, piece.find
    at, last = find(b"\n"), len(piece) - 1
    while at < last:
        if piece[at - 1] != _CLOSING or piece[at + 1] != _OPENING:
            return None
        lines += 1
        at = find(b"\n", at + 1)
    return lines
