r"""A trace file as pieces of whole lines, in constant memory.

Lines end at `\n` and nowhere else: U+2028, U+2029 and U+0085 are text. The last line may lack its
end. Nothing here knows what a line means.

Only regular files are read: a pipe would be waited for and a device has no end. What a writer
appends after the file was opened is not read, but for the rest of a line that was half there.
"""

import os
import stat
from collections.abc import Iterator

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import TraceError
from proctor.json_values import MOST_VALUES, has_more_values
from proctor.sentence import reason_of

LINE_LIMIT = 1 << 27
"""A line longer than this, 128 MiB, is stepped over without being held."""
_PIECE = 1 << 16
"""Bytes read at a time: what stays in the processor's cache while it is decoded.

Twice as many, and the allocator gives each piece back to the system and asks for it anew.
"""
_LINE_END = ord("\n")


class Oversized(msgspec.Struct, frozen=True, gc=False):
    """A line that was stepped over."""

    length: int
    """Its bytes, its end counted."""
    limit: int
    """What was allowed."""
    unit: str = "bytes"
    """Of the limit: bytes, or values."""

    def describe(self, line: int) -> Diagnostic:
        """What a reader says of it."""
        message = f"a line of {self.length:,} bytes"
        if self.unit == "bytes":
            message += f"; expected no more than {self.limit:,}"
        else:
            message += f" with more than {self.limit:,} {self.unit}; it is not decoded"
        return Diagnostic("line-too-long", message, line)


class OpenTrace:
    """An open file, to be read once, front to back; or a span of it that ends where a line does."""

    def __init__(
        self, path: str, limit: int = LINE_LIMIT, span: tuple[int, int] | None = None
    ) -> None:
        """Open it.

        Raises:
            TraceError: it is missing, not a regular file, or may not be read.
        """
        self.path = path
        self._limit = limit
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:
            raise TraceError(f"{path}: cannot be read: {reason_of(error)}") from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise TraceError(f"{path}: {what}; expected a file of lines")
        self.size = status.st_size
        """Its bytes when it was opened; of a span, where it ends."""
        self._taken = 0
        if span is not None:
            self._taken, self.size = span
            os.lseek(self._fd, self._taken, os.SEEK_SET)
        self._at_line_end = True

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def find_changes(self) -> list[Diagnostic]:
        """What happened to the file since it was opened, asked when all of it is read."""
        if self._taken < self.size:
            message = f"{self.size - self._taken:,} bytes were cut off the file while it was read"
            return [Diagnostic("file-shrank", message)]
        if os.fstat(self._fd).st_size > self._taken:
            message = "the file grew while it was read; what came after the first look is not in"
            return [Diagnostic("file-grew", message, is_problem=False)]
        return []

    def pieces(self) -> Iterator[bytes | Oversized]:
        """Whole lines, many at a time; the last piece may end without a line end.

        Raises:
            TraceError: the disk gave an error.
        """
        buffer = bytearray(min(_PIECE, max(self.size, 1)))
        filled = dropped = 0
        while taken := self._take(memoryview(buffer)[filled:]):
            start = buffer.find(b"\n", filled, filled + taken) + 1 if dropped else 0
            end = buffer.rfind(b"\n", filled, filled + taken) + 1
            filled += taken
            if not end:
                buffer, filled, dropped = self._make_room(buffer, filled, dropped)
                continue
            if dropped:
                yield Oversized(dropped + start, self._limit)
                dropped = 0
            if end > start:
                yield from sift(buffer, start, end)
            rest = buffer[end:filled]
            if len(buffer) > _PIECE > len(rest):
                buffer = bytearray(_PIECE)
            filled = len(rest)
            buffer[:filled] = rest
        if dropped:
            yield Oversized(dropped + filled, self._limit)
        elif filled:
            yield from sift(buffer, 0, filled)

    def _make_room(
        self, buffer: bytearray, filled: int, dropped: int
    ) -> tuple[bytearray, int, int]:
        """A buffer with room for more of a line that it does not hold to its end."""
        if dropped or filled > self._limit:
            # Only the length is kept: the line may be longer than memory.
            return buffer, 0, dropped + filled
        if filled == len(buffer):
            # One byte more than a line may have, so that a longer one is noticed and not held.
            most = max(self._limit + 1 - filled, 1)
            # In place, so that a long line is not held twice while it grows.
            buffer += bytes(min(max(filled, _PIECE), most))
        return buffer, filled, dropped

    def _take(self, into: memoryview) -> int:
        """Read on; past the size at opening, only up to the end of the line begun."""
        left = self.size - self._taken
        if left <= 0 and self._at_line_end:
            return 0
        try:
            taken = os.readv(self._fd, [into[:left] if left > 0 else into])
        except OSError as error:
            raise TraceError(f"{self.path}: cannot be read: {reason_of(error)}") from error
        if left <= 0:
            taken = bytes(into[:taken]).find(b"\n") + 1 or taken
        self._taken += taken
        self._at_line_end = taken > 0 and into[taken - 1] == _LINE_END
        return taken


def sift(buffer: bytes | bytearray, begin: int, end: int) -> Iterator[bytes | Oversized]:
    """Lines in a buffer, without those that hold too many values to be decoded."""
    at = begin
    # A value takes a byte at least, so that short pieces, which most are, need no look.
    while at < end and end - begin > MOST_VALUES:
        stop = buffer.find(b"\n", at, end) + 1 or end
        if has_more_values(buffer, MOST_VALUES, at, stop):
            if at > begin:
                yield bytes(memoryview(buffer)[begin:at])
            yield Oversized(stop - at, MOST_VALUES, "values")
            begin = stop
        at = stop
    if begin < end:
        yield bytes(memoryview(buffer)[begin:end])
