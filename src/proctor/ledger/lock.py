"""The write lock of a ledger: on a file in its directory, released when the process ends.

Ledgers on network file systems are not written, because locks may not be visible to other machines
there.
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
    fd = _open_lock(directory)
    try:
        until = None if patience_sec is None else time.monotonic() + patience_sec
        while until is not None and not try_lock(fd):
            if time.monotonic() >= until:
                raise BusyError(
                    f"{directory}: another process has been writing to it for "
                    f"{patience_sec:g} seconds; nothing was written: try again"
                )
            time.sleep(_POLL_SEC)
        if until is None:
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def check_local(directory: Path) -> None:
    """Refuse a directory that another machine may write to.

    Raises:
        LedgerError: the directory is on a network file system.
    """
    if kind := find_network(directory):
        remedy = "Write to one on a local disk, and copy it; reading it here is fine"
        # As the copy of a server's ledger is named.
        if directory.parts[-3:-1] == ("proctor", "ledgers"):
            remedy = "Set XDG_STATE_HOME to a directory on a local disk: copies are kept there"
        raise LedgerError(
            f"{directory}: on {kind}, a network file system; locks and atomic replacement "
            f"are not reliable there, and two writers would break the ledger. {remedy}"
        )


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
