"""The write lock of a ledger: on a file in its directory, released when the process ends.

The directory itself is locked as well, because older versions lock only that. Ledgers on network
file systems are not written, because locks may not be visible to other machines there.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import BusyError, LedgerError
from proctor.files import try_lock
from proctor.filesystems import find_network

LOCK = "lock"
_POLL_SEC = 0.05


@contextlib.contextmanager
def locked(directory: Path, patience_sec: float | None = None) -> Iterator[None]:
    """Hold the lock; wait at most `patience_sec` seconds, or without limit."""
    check_local(directory)
    with contextlib.ExitStack() as held:
        # Always in this order, so that two writers cannot deadlock.
        for open_part in (_open_lock, _open_directory):
            fd = open_part(directory)
            held.callback(os.close, fd)
            if patience_sec is None:
                fcntl.flock(fd, fcntl.LOCK_EX)
            else:
                _wait(fd, directory, patience_sec)
        yield


def check_local(directory: Path) -> None:
    """Refuse a directory that another machine may write to.

    Raises:
        LedgerError: the directory is on a network file system.
    """
    if kind := find_network(directory):
        raise LedgerError(
            f"{directory}: on {kind}, a network file system; locks and atomic replacement "
            "are not reliable there, and two writers would break the ledger. "
            f"{_remedy_of(directory)}"
        )


def _remedy_of(directory: Path) -> str:
    # As the copy of a server's ledger is named.
    if directory.parts[-3:-1] == ("proctor", "ledgers"):
        return "Set XDG_STATE_HOME to a directory on a local disk: copies of ledgers are kept there"
    return "Write to one on a local disk, and copy it; reading it here is fine"


def _open_directory(directory: Path) -> int:
    # Versions before the lock file lock only the directory.
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _open_lock(directory: Path) -> int:
    # O_NONBLOCK: opening a FIFO that somebody put there must not block.
    path, flags = directory / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        fd = os.open(path, flags | os.O_CREAT, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return fd


def _wait(fd: int, directory: Path, patience_sec: float) -> None:
    until = time.monotonic() + patience_sec
    while not try_lock(fd):
        if time.monotonic() >= until:
            raise BusyError(
                f"{directory}: another process has been writing to it for "
                f"{patience_sec:g} seconds; nothing was written: try again"
            )
        time.sleep(_POLL_SEC)
