"""Where artifacts lie until they have their names: a directory for each writer, and gone with it.

    artifacts/sha256/.HEX.tmp/…

A writer holds a lock on its own directory as long as it lives. Whoever makes the next one removes
those that nobody holds: what a kill left. Nothing here knows what the files are.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Self


class Unnamed:
    """A writer's directory."""

    def __init__(self, directory: Path, fd: int) -> None:
        self._directory = directory
        self._fd = fd

    @classmethod
    def make(cls, parent: Path) -> Self:
        """A new directory, held; those of writers that are dead go.

        Raises:
            OSError: none can be made.
        """
        # One at a time: a directory that is made and not held yet is nobody's to remove.
        with _held(parent):
            _clear(parent)
            directory = parent / f".{os.urandom(8).hex()}.tmp"
            directory.mkdir()
            fd = _open(directory)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return cls(directory, fd)

    def new_path(self) -> Path:
        """A name in it that nothing has."""
        return self._directory / os.urandom(8).hex()

    def remove(self) -> None:
        """Let go of the directory and of what is still in it."""
        shutil.rmtree(self._directory, ignore_errors=True)
        os.close(self._fd)


def _clear(parent: Path) -> None:
    for left in parent.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            fd = _open(left, os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a living writer's is left alone
                shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(fd)


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    fd = _open(directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _open(directory: Path, more: int = 0) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | more)
