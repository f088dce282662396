"""Follows a file that is being written, line by line.

Waits for the rest of an incomplete line, and notices when the file is truncated or replaced. A file
that is rewritten in place without getting shorter cannot be told from one that has grown.
"""

import os
import stat
from collections.abc import Iterator
from enum import Enum

import msgspec

from proctor.errors import TraceError
from proctor.sentence import reason_of

LINE_LIMIT = 1 << 24
"""Bytes of a line: longer ones are skipped, because nobody reads them in a terminal."""
_PIECE = 1 << 20


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line."""

    number: int
    """Counted from 1."""
    text: bytes | None
    """Without its newline; None if it was too long."""
    length: int
    ended: bool = True
    """False for a last line without its newline."""


class Change(Enum):
    """What happened to the file, other than growing."""

    CUT = "was truncated; lines are counted from 1 again"
    REPLACED = "was replaced; the new file follows from its first line"
    GONE = "was removed; waiting for it to reappear"


class Tail:
    """A file that is followed."""

    def __init__(self, path: str) -> None:
        """Open the file."""
        self.path = path
        self._is_gone = False
        self._fd = _open(path)
        self._start()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def read(self) -> Iterator[Line]:
        """The complete lines since the last call."""
        while data := self._take():
            *ends, rest = data.split(b"\n")
            for piece in ends:
                self._hold(piece)
                yield self._finish()
            self._hold(rest)

    def read_rest(self) -> Line | None:
        """The start of an incomplete line."""
        if not self._held:
            return None
        text = b"".join(self._parts) if self._held <= LINE_LIMIT else None
        return Line(self._number, text, self._held, ended=False)

    def find_change(self) -> Change | None:
        """What happened to the file. After CUT and REPLACED, call `start_again` before reading."""
        ours = os.fstat(self._fd)
        # A file that shrank was truncated; one that was truncated and has grown again cannot be
        # noticed.
        if ours.st_size < self._position:
            return Change.CUT
        try:
            there = os.stat(self.path)  # noqa: PTH116 - paths of traces are strings
        except OSError:
            was_gone, self._is_gone = self._is_gone, True
            return None if was_gone else Change.GONE
        self._is_gone = False
        same = (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
        return None if same else Change.REPLACED

    def start_again(self) -> None:
        """Go to the first line of the present file."""
        fd = _open(self.path)
        os.close(self._fd)
        self._fd = fd
        self._start()

    def _start(self) -> None:
        self._number = 1
        self._position = 0
        self._parts: list[bytes] = []
        self._held = 0

    def _take(self) -> bytes:
        try:
            data = os.read(self._fd, _PIECE)
        except OSError as error:
            raise TraceError(f"{self.path}: cannot be read: {error.strerror}") from error
        self._position += len(data)
        return data

    def _hold(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > LINE_LIMIT:
            # Only the length of an oversized line is kept.
            self._parts.clear()
        elif piece:
            self._parts.append(piece)

    def _finish(self) -> Line:
        text = b"".join(self._parts) if self._held <= LINE_LIMIT else None
        line = Line(self._number, text, self._held)
        self._number += 1
        self._parts, self._held = [], 0
        return line


def _open(path: str) -> int:
    try:
        # O_NONBLOCK: opening a FIFO must not block before it is refused.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read: {reason_of(error)}") from error
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        what = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise TraceError(f"{path}: {what}; expected trajectory.jsonl")
    return fd
