"""Ranges of host ids, one for the users of each sandbox, if proctor runs as root.

    ids = take_range()      a range that no other sandbox on this machine uses
    ids.close()             after everything of the sandbox was removed

The kernel accounts for processes, watches, pipes and locked memory by a user's id on the host, so
sandboxes with different ids cannot exhaust each other's. No file on disk has one of these ids as
its owner: layers are mapped.
"""

import fcntl
import os
import secrets
import struct
from pathlib import Path

from proctor.environments.sandbox.blueprint import FIRST_OF_RANGES, RANGE
from proctor.errors import SandboxError
from proctor.sentence import reason_of

# Byte n is locked while range n is in use; the kernel releases the locks of a dead run.
_LOCK = Path("/run/proctor-ids.lock")
# Without the last range, which contains the invalid id -1.
_N_RANGES = ((1 << 32) - FIRST_OF_RANGES) // RANGE - 1
_USERS = tuple(Path("/etc", name) for name in ("passwd", "group", "subuid", "subgid"))
_MAPS = tuple(Path("/proc/self", name) for name in ("uid_map", "gid_map"))
_WRITE_LOCK = struct.Struct("hh4xqqi4x")


class Range:
    """A range in use."""

    def __init__(self, number: int, lock: int) -> None:
        self.first = FIRST_OF_RANGES + number * RANGE
        self._lock = lock

    def close(self) -> None:
        """Release it. Can be called twice."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def take_range() -> Range:
    """Take a free range.

    Raises:
        SandboxError: none is free, or the files that list users cannot be read.
    """
    try:
        usable = set(range(_N_RANGES))
        for path in _MAPS:
            # A container may have only a part of the machine's ids.
            lines = [tuple(map(int, line.split())) for line in path.read_text("ascii").splitlines()]
            usable &= {n for inside, _, count in lines for n in _inside(inside, count)}
        for path in _USERS:
            if path.exists():
                for line in path.read_text("utf-8", "replace").splitlines():
                    usable -= _given(path.name, line.split(":"))
        lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SandboxError(f"no ids of its own: {error.filename}: {reason_of(error)}") from error
    # Start at random: a killed run may have left dying processes in the range it used last.
    start = secrets.randbelow(_N_RANGES)
    for n in range(_N_RANGES):
        number = (start + n) % _N_RANGES
        if number in usable and _is_locked(lock, number):
            return Range(number, lock)
    os.close(lock)
    raise SandboxError(f"no ids of its own: none of {len(usable):,} ranges is free")


def _is_locked(lock: int, number: int) -> bool:
    """Try to lock a byte. Open file description locks exclude other locks of this process too."""
    wanted = _WRITE_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
    try:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, wanted)
    except BlockingIOError:
        return False
    return True


def _inside(first: int, count: int) -> range:
    """Return the ranges that are completely within these ids."""
    begin = max(0, -((FIRST_OF_RANGES - first) // RANGE))
    return range(begin, min(_N_RANGES, max(0, first + count - FIRST_OF_RANGES) // RANGE))


def _given(file: str, fields: list[str]) -> set[int]:
    """Return the ranges that contain an id of a line in one of the files."""
    numbers = [int(field) for field in fields[1:4] if field.isascii() and field.isdecimal()]
    if not numbers:
        return set()
    count = numbers[1] if file.startswith("sub") and len(numbers) > 1 else 1
    first, last = numbers[0] - FIRST_OF_RANGES, numbers[0] + count - 1 - FIRST_OF_RANGES
    return set(range(max(0, first // RANGE), last // RANGE + 1)) if count > 0 else set()
