"""Checks that the cache is private, and locks parts of it.

A cache to which other users can write is refused: its files are executed, possibly by root. Locks
are flocks: they end with their process, and also exclude each other within one process. What is
locked is not removed.
"""

import asyncio
import contextlib
import fcntl
import os
import stat
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from proctor.errors import ImageError
from proctor.files import try_lock
from proctor.filesystems import find_stranger
from proctor.sentence import reason_of

_POLL_SECONDS = 0.02

# Descriptors of locks that this process holds until it ends, by path.
_HELD: dict[str, int] = {}


def make_private(directory: Path) -> Path:
    """Return the directory, created if missing and accessible only to this user.

    Other users must not reach it, because images in it may contain set-user-id programs.

    Raises:
        ImageError: it cannot be created, or other users can write to it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if stranger := find_stranger(directory):
            raise ImageError(f"{stranger}; set PROCTOR_CACHE to use another directory")
        found = directory.stat()
        if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
            directory.chmod(0o700)
    except OSError as error:
        raise ImageError(
            f"{directory}: cannot be created: {reason_of(error)}; set PROCTOR_CACHE to use another "
            "directory"
        ) from error
    return directory


@contextlib.contextmanager
def locked(path: Path, stopped: threading.Event | None = None) -> Iterator[None]:
    """Lock a file exclusively; blocks until it is free.

    Raises:
        InterruptedError: `stopped` was set meanwhile.
    """
    fd = _open(path)
    try:
        while stopped is not None and not try_lock(fd):
            if stopped.wait(_POLL_SECONDS):
                raise InterruptedError
        if stopped is None:
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextlib.asynccontextmanager
async def locked_soon(path: Path) -> AsyncIterator[None]:
    """Lock a file exclusively without blocking the event loop; can be cancelled."""
    fd = _open(path)
    try:
        while not try_lock(fd):
            await asyncio.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(fd)


def hold(path: Path) -> bool:
    """Keep what this file protects from being removed, until this process ends.

    Returns False if this process held it already.
    """
    key = os.fspath(path)
    if key in _HELD:
        return False
    while True:
        fd = _open(path)
        # Shared: any number of processes may use it, but a remover needs an exclusive lock.
        fcntl.flock(fd, fcntl.LOCK_SH)
        try:
            is_at = os.path.samestat(os.fstat(fd), path.stat())
        except FileNotFoundError:
            is_at = False
        if is_at:
            _HELD[key] = fd
            return True
        # It was removed while this waited for the remover's lock.
        os.close(fd)


def release(path: Path) -> None:
    """Undo `hold`."""
    if (fd := _HELD.pop(os.fspath(path), None)) is not None:
        os.close(fd)


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Yield whether no process holds what this file protects; none can until the `with` ends."""
    try:
        fd = _open(path, make=0)
    except FileNotFoundError:
        yield True
        return
    try:
        yield try_lock(fd)
    finally:
        os.close(fd)


def _open(path: Path, make: int = os.O_CREAT) -> int:
    try:
        return os.open(path, os.O_RDWR | make | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if not make and isinstance(error, FileNotFoundError):
            raise
        raise ImageError(f"{path}: cannot be locked: {reason_of(error)}") from error
