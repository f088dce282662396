"""The lock that makes a writer the only one: on the ledger's directory, gone with its process."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import BusyError

_LOOK_EVERY_SEC = 0.05


@contextlib.contextmanager
def locked(directory: Path, patience_sec: float | None = None) -> Iterator[None]:
    """Hold the lock; without patience given, wait for it as long as it takes.

    Raises:
        BusyError: somebody else holds it for longer than that.
        OSError: the directory cannot be opened.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if patience_sec is None:
            fcntl.flock(fd, fcntl.LOCK_EX)
        else:
            _wait(fd, directory, patience_sec)
        yield
    finally:
        os.close(fd)


def _wait(fd: int, directory: Path, patience_sec: float) -> None:
    until = time.monotonic() + patience_sec
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise BusyError(
                    f"{directory}: another process has been writing to it for "
                    f"{patience_sec:g} seconds; nothing was written: try again"
                ) from None
            time.sleep(_LOOK_EVERY_SEC)
        else:
            return
