"""Durable writes and small reads: the only fsync.

    write_atomic(path, data)    the file is the old one or the new one, never half of either
    read_small(path)            the whole file in as few system calls as Python allows

Nothing here knows what the bytes mean.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

_FIRST_READ = 16384
_LARGEST = 1 << 28
"""Files above this are refused: nothing that is read whole here is honestly that large."""


def read_small(path: str) -> bytes:
    """All bytes of a regular file, in three system calls when it is under 16 KiB.

    Never waits on a pipe and never drains a device: a stranger may have put one there.

    Raises:
        OSError: unreadable, not a regular file, or larger than 256 MiB.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        data = os.read(fd, _FIRST_READ)
        if len(data) < _FIRST_READ:
            return data
        return data + _read_rest(fd, path)
    except OSError as error:
        error.filename = path
        raise
    finally:
        os.close(fd)


def _read_rest(fd: int, path: str) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)
    if status.st_size > _LARGEST:
        raise OSError(errno.EFBIG, f"larger than {_LARGEST >> 20} MiB", path)
    with os.fdopen(fd, "rb", closefd=False) as file:
        return file.read()


def write_atomic(path: Path, data: bytes) -> None:
    """Put data at path, durable when this returns; a crash leaves the old file or the new one.

    Raises:
        OSError: it cannot be written, or what is there is no plain file: a device stays a device.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    temporary = path.with_name(f".{os.urandom(8).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    # fsync the directory too, or a power cut can lose the file's name.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
