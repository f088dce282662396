"""A small file that is rewritten often: replaced atomically, without waiting for the disk.

Renaming over a file makes ext4 flush the new one first, which takes a thousand times longer than
the rename itself. Exchanging two names avoids that. After a power cut the contents are unspecified;
after a kill the file is the old or the new one. A reader sees one of the two as well, unless
reading takes longer than two rewrites.
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
        # Upper bound of the previous file's size.
        self._other_size = 0

    def write(self, data: bytes) -> None:
        """Replace the file's contents atomically."""
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

    def write_by_renaming(self, path: str, data: bytes) -> None:
        """Write data to a new path by renaming the previous version of this file; ends rewriting.

        Reusing a file avoids creating one, which is the slowest step for a small file.
        """
        if self._has_other:
            self._write_other(data)
            os.replace(self._other, path)
            self._has_other = False
        else:
            replace_file(path, data)

    def close(self) -> None:
        """Delete the previous version and stop writing."""
        if self._has_other:
            with contextlib.suppress(OSError):
                os.unlink(self._other)

    def _write_other(self, data: bytes) -> None:
        before, self._other_size = self._other_size, max(self._other_size, len(data))
        fd = os.open(self._other, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, data)
            # Truncate afterwards: ext4 flushes a file that was truncated to zero when it is closed.
            if len(data) < before:
                os.ftruncate(fd, len(data))
        finally:
            os.close(fd)


def _exchange(one: bytes, other: bytes) -> bool:
    """Exchange two names; False if the system or the file system does not support it."""
    if _RENAME is None:
        return False
    refused: int = _RENAME(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE)
    return refused == 0
