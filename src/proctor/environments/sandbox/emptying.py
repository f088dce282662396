"""Making a directory as new again that a stranger wrote in: no entry, mode, owner or attribute.

Gives up where that would take long; what is left then is for delete.py.
"""

import fcntl
import os
import stat
import struct
from typing import NamedTuple

_MOST_ENTRIES = 500
_GET_FLAGS = 0x80086601
_KERNELS = "trusted.overlay."
"""Attributes that the kernel itself sets on an overlay's upper directory; nobody inside can."""
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Stamp(NamedTuple):
    """All that a directory has besides its entries."""

    mode: int
    uid: int
    gid: int
    flags: int
    """What lsattr shows."""
    attributes: tuple[tuple[str, bytes], ...]
    """Extended ones, access lists among them; not those that only the kernel sets."""
    changed_ns: tuple[int, int]
    """When an entry was last made or removed, and when anything about it was last changed. Nobody
    can set the second."""


def stamp_of(directory: str) -> Stamp:
    """What a directory is like now.

    Raises:
        OSError: it is not there, or a link.
    """
    fd = os.open(directory, _OPEN)
    try:
        found = os.fstat(fd)
        names = [name for name in os.listxattr(fd) if not name.startswith(_KERNELS)]
        return Stamp(
            mode=stat.S_IMODE(found.st_mode),
            uid=found.st_uid,
            gid=found.st_gid,
            flags=_flags_of(fd),
            attributes=tuple(sorted((name, os.getxattr(fd, name)) for name in names)),
            changed_ns=(found.st_mtime_ns, found.st_ctime_ns),
        )
    finally:
        os.close(fd)


def _flags_of(fd: int) -> int:
    try:
        return int(struct.unpack("=q", fcntl.ioctl(fd, _GET_FLAGS, bytes(8)))[0])
    except OSError:
        # A file system without such flags.
        return 0


def is_pristine(directory: str, like: Stamp) -> bool:
    """Whether nothing was ever made or changed in a directory since its stamp was taken."""
    return stamp_of(directory) == like and not os.listdir(directory)


def forget_reading(directory: str) -> None:
    """Have a directory not tell when somebody last listed it."""
    os.utime(directory, ns=(0, os.stat(directory).st_mtime_ns))


def make_like(directory: str, like: Stamp) -> bool:
    """Give an empty directory looks and times; False where it keeps something else."""
    fd = os.open(directory, _OPEN)
    try:
        for name in os.listxattr(fd):
            os.removexattr(fd, name)
        found = os.fstat(fd)
        if (found.st_uid, found.st_gid) != (like.uid, like.gid):
            os.fchown(fd, like.uid, like.gid)
        if stat.S_IMODE(found.st_mode) != like.mode:
            os.fchmod(fd, like.mode)
        os.utime(fd, ns=(like.changed_ns[0],) * 2)
    finally:
        os.close(fd)
    return stamp_of(directory)._replace(changed_ns=like.changed_ns) == like


def empty(directory: str) -> bool:
    """Delete all that is in a directory; False where it is too much to wait for.

    Raises:
        OSError: something cannot be deleted so.
    """
    return _empty(directory, _MOST_ENTRIES) >= 0


def _empty(directory: str, most: int) -> int:
    """How many more may be deleted; less than none: it was given up."""
    with os.scandir(directory) as found:
        entries = list(found)
    for entry in entries:
        most -= 1
        if most < 0:
            break
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
            continue
        most = _empty(entry.path, most)
        if most >= 0:
            os.rmdir(entry.path)
    return most
