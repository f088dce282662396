"""A small file that is rewritten often: replaced in one step, without waiting for the disk.

To rename over a file makes ext4 write the new one out first, which takes a thousand times longer
than the rename itself. Two names that are exchanged cost nothing of the kind. What a power cut
leaves is not promised here; after a kill the file is the old or the new one, and so it is for a
reader, unless reading it takes him longer than the time from one writing to the next but one.
"""

import contextlib
import ctypes
import os

from proctor.files import replace_file, write_all

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


class SwappedFile:
    """A file that one writer rewrites."""

    def __init__(self, path: str) -> None:
        self._path = path
        directory, name = os.path.split(path)
        self._other = f"{directory or '.'}/.{name}.tmp"
        self._names = os.fsencode(self._other), os.fsencode(path)
        self._is_there = False
        self._has_other = False
        self._size = 0
        self._other_size = 0
        """Of what was before the file, at most."""

    def write(self, data: bytes) -> None:
        """Put data into the file in one step.

        Raises:
            OSError: it cannot be written; the old file stays.
        """
        if not self._is_there:
            replace_file(self._path, data)
            self._is_there = True
            self._size = len(data)
            return
        self._has_other = True
        self._write_other(data)
        if not _exchange(*self._names):
            os.replace(self._other, self._path)
            self._has_other = False
        self._size, self._other_size = len(data), self._size

    def give_other(self, path: str, data: bytes) -> None:
        """Put data where nothing is, and write no more: what was before this file becomes that one.

        To make a file is what takes longest about a small one.

        Raises:
            OSError: it cannot be written; whatever is at the path stays.
        """
        if self._has_other:
            self._write_other(data)
            os.replace(self._other, path)
            self._has_other = False
        else:
            replace_file(path, data)

    def close(self) -> None:
        """Leave the file alone, without what was before it."""
        if self._has_other:
            with contextlib.suppress(OSError):
                os.unlink(self._other)

    def _write_other(self, data: bytes) -> None:
        before, self._other_size = self._other_size, max(self._other_size, len(data))
        fd = os.open(self._other, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, data)
            # Not before: a file that was cut to nothing is flushed when it is closed.
            if len(data) < before:
                os.ftruncate(fd, len(data))
        finally:
            os.close(fd)


def _exchange(one: bytes, other: bytes) -> bool:
    """Exchange two names; False where the system or the file system cannot."""
    if _RENAME is None:
        return False
    refused: int = _RENAME(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE)
    return refused == 0
