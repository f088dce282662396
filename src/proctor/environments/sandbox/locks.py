"""Whose the cache is, and who holds a part of it just now.

A cache that somebody else could write to is none: what lies there is run, and by root perhaps.
A lock is an flock: it ends with its process, however that ends, and two of one process exclude each
other as those of two processes do. What is held is not removed. Nothing here removes anything.
"""

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from proctor.errors import ImageError
from proctor.filesystems import find_stranger
from proctor.sentence import reason_of

_POLL_SECONDS = 0.02

_HELD: dict[str, int] = {}
"""Descriptors of what this process uses until it ends, by path."""


def make_private(directory: Path) -> Path:
    """The directory, there and closed to everybody else, whatever setuid programs lie in it.

    Raises:
        ImageError: it cannot be made, or somebody else made it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stranger := find_stranger(directory):
            raise ImageError(f"{stranger}; PROCTOR_CACHE names another place")
        found = directory.stat()
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
            directory.chmod(0o700)
    except OSError as error:
        raise ImageError(
            f"{directory}: cannot be made: {reason_of(error)}; PROCTOR_CACHE names another place"
        ) from error
    return directory


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Alone, among all who lock this file; waits for whoever has it."""
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextlib.asynccontextmanager
async def locked_soon(path: Path) -> AsyncIterator[None]:
    """As `locked`, while the event loop goes on; a waiter may be cancelled."""
    fd = _open(path)
    try:
        while not _try(fd, fcntl.LOCK_EX):
            await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(fd)


def hold(path: Path) -> None:
    """Keep what this file stands for from being removed, until this process ends."""
    key = os.fspath(path)
    if key not in _HELD:
        fd = _open(path)
        fcntl.flock(fd, fcntl.LOCK_SH)
        _HELD[key] = fd


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether nobody holds what this file stands for; until the end nobody can begin to."""
    if not path.exists():
        yield True
        return
    fd = _open(path)
    try:
        yield _try(fd, fcntl.LOCK_EX)
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ImageError(f"{path}: cannot be locked: {reason_of(error)}") from error


def _try(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
