"""Read some steps of a trajectory, with the same result as a full reading, but faster.

    for chunk in read_steps(path, 3, 7):
                chunk.entries                        the entries of steps 3 to 7, in file order

Every line is still decoded, but only for its step: steps may be in any order, keys may be written
with escapes, the last of two equal keys counts. A piece of the file is read in full if it may
contain one of the steps, or if that decoder is not conclusive: a line without a step, a step
written as 3.0 or "3", a line that is not an object, an object over several lines. Large files are
searched by two processes.

Diagnostics are reported only for lines that were read in full.
"""

import io
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec

from proctor.errors import TraceError
from proctor.sentence import reason_of
from proctor.traces.lines import LINE_LIMIT, OpenTrace, Oversized
from proctor.traces.trajectory import Chunk, read_pieces

# From 64 MiB on, a second process saves more than it costs.
_WORTH_IT = 1 << 26
_LOOK = 1 << 16


class _Stepped(msgspec.Struct, gc=False):
    """An entry of which only the step is decoded."""

    step: int


class Survey(msgspec.Struct, frozen=True, gc=False):
    """What is known of some lines without a full reading."""

    lines: int
    least: int
    most: int
    is_odd: bool = False
    """Whether only a full reading is conclusive; the steps are then meaningless."""

    def may_hold(self, first: int, last: int) -> bool:
        """Whether an entry of one of these steps may be in the lines."""
        return self.is_odd or (self.least <= last and self.most >= first)


class _Hit(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A piece of the file to read in full."""

    begin: int
    size: int
    line: int
    """Number of its first line, from the beginning of the searched span."""
    limit: int = 0
    """If above 0, the piece is one line with more of `unit` than this."""
    unit: str = "bytes"


class _Hits(msgspec.Struct, frozen=True, array_like=True):
    lines: int
    """The number of lines searched."""
    hits: list[_Hit]


_DECODER = msgspec.json.Decoder(_Stepped)


def survey_piece(piece: bytes) -> Survey:
    """Survey whole lines, each by itself; the last may lack its end."""
    try:
        # Decoding only the step is several times faster than decoding entries, and exact.
        steps = [each.step for each in map(_DECODER.decode, io.BytesIO(piece))]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Survey(piece.count(b"\n") + (not piece.endswith(b"\n")), 0, 0, is_odd=True)
    return Survey(len(steps), min(steps), max(steps))


def read_steps(
    path: str, first: int, last: int, *, line_limit: int = LINE_LIMIT, worth_it: int = _WORTH_IT
) -> Iterator[Chunk]:
    """Yield the entries of the steps first to last, inclusive; reading is lenient."""
    search = _Search(path, first, last, line_limit)
    size = search.size()
    found = search.in_two(size) if size >= worth_it else search.in_span(0, size)
    for hit in found.hits:
        if hit.limit:
            line = Oversized(hit.size, hit.limit, hit.unit)
            yield Chunk([], [], diagnostics=[line.describe(hit.line)])
            continue
        for chunk in read_pieces([(hit.line, _read_at(path, hit))]):
            yield narrow(chunk, first, last)


def narrow(chunk: Chunk, first: int, last: int) -> Chunk:
    """Keep the entries of these steps, and the diagnostics about them or about no step."""
    both = list(zip(chunk.entries, chunk.lines, strict=True))
    kept = [each for each in both if first <= each[0].step <= last]
    others = {line for entry, line in both if not first <= entry.step <= last}
    return Chunk(
        [entry for entry, _ in kept],
        [line for _, line in kept],
        [],
        [found for found in chunk.diagnostics if found.line not in others],
    )


class _Search:
    """A search for steps in one file."""

    def __init__(self, path: str, first: int, last: int, limit: int) -> None:
        self._path, self._first, self._last, self._limit = path, first, last, limit

    def size(self) -> int:
        trace = OpenTrace(self._path, self._limit)
        trace.close()
        return trace.size

    def in_span(self, begin: int, end: int) -> _Hits:
        trace = OpenTrace(self._path, self._limit, (begin, end))
        line, hits = 1, []
        try:
            for piece in trace.pieces():
                if isinstance(piece, Oversized):
                    hits.append(_Hit(begin, piece.length, line, piece.limit, piece.unit))
                    begin, line = begin + piece.length, line + 1
                    continue
                survey = survey_piece(piece)
                if survey.may_hold(self._first, self._last):
                    hits.append(_Hit(begin, len(piece), line))
                begin, line = begin + len(piece), line + survey.lines
        finally:
            trace.close()
        return _Hits(line - 1, hits)

    def in_two(self, size: int) -> _Hits:
        """Search the first half here, the second in another process."""
        middle = self._find_line(size // 2, size)
        ours, theirs = os.pipe()
        # Forked rather than a pool: the child only reads a file and writes to a pipe.
        child = os.fork()
        if not child:
            os.close(ours)
            self._answer(theirs, middle, size)
        os.close(theirs)
        try:
            front = self.in_span(0, middle)
            with os.fdopen(ours, "rb") as answer:
                data = answer.read()
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(child, 0)
        # If the child was killed, this process searches its half too.
        back = self.in_span(middle, size) if status else msgspec.msgpack.decode(data, type=_Hits)
        moved = [msgspec.structs.replace(hit, line=hit.line + front.lines) for hit in back.hits]
        return _Hits(front.lines + back.lines, front.hits + moved)

    def _answer(self, to: int, begin: int, end: int) -> None:
        """Write the hits in the span to a pipe, and end this process."""
        status = 1
        try:
            data = msgspec.msgpack.encode(self.in_span(begin, end))
            with os.fdopen(to, "wb") as answer:
                answer.write(data)
            status = 0
        finally:
            os._exit(status)

    def _find_line(self, at: int, size: int) -> int:
        """The start of the first line after an offset."""
        with Path(self._path).open("rb", buffering=0) as file:
            file.seek(at)
            while piece := file.read(_LOOK):
                end = piece.find(b"\n") + 1
                if end:
                    return min(at + end, size)
                at += len(piece)
        return size


def _read_at(path: str, hit: _Hit) -> bytes:
    try:
        with Path(path).open("rb", buffering=0) as file:
            file.seek(hit.begin)
            return file.read(hit.size)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {reason_of(error)}") from error
