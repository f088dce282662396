"""Ranges of the host's ids, for root: each sandbox's users have one to themselves.

    ids = take_range()      a range that no other sandbox on this machine has
    ids.close()             when nothing of the sandbox is left

The kernel counts what a user has (processes, watches, pipes, locked memory) by his id on the host,
and tells users apart by it. No file on a disk ever belongs to one of these ids: layers are mapped.
"""

import fcntl
import os
import secrets
import struct
from pathlib import Path

from proctor.environments.sandbox.blueprint import FIRST_OF_RANGES, RANGE
from proctor.errors import SandboxError
from proctor.sentence import reason_of

_LOCK = Path("/run/proctor-ids.lock")
"""Byte n of it is locked while range n is taken; the kernel unlocks what a dead run had."""
_N_RANGES = ((1 << 32) - FIRST_OF_RANGES) // RANGE - 1
"""All but the last, which has the id that means none."""
_USERS = tuple(Path("/etc", name) for name in ("passwd", "group", "subuid", "subgid"))
_MAPS = tuple(Path("/proc/self", name) for name in ("uid_map", "gid_map"))
_WRITE_LOCK = struct.Struct("hh4xqqi4x")


class Range:
    """A range that is held."""

    def __init__(self, number: int, lock: int) -> None:
        self.first = FIRST_OF_RANGES + number * RANGE
        self._lock = lock

    def close(self) -> None:
        """Let others have it; once or more."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def take_range() -> Range:
    """A range that nobody else has.

    Raises:
        SandboxError: there is none, or nobody can tell.
    """
    try:
        usable = _find_usable()
        lock = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SandboxError(f"no ids of its own: {error.filename}: {reason_of(error)}") from error
    # Not the first one: a killed run may have left processes that are still dying.
    start = secrets.randbelow(_N_RANGES)
    for n in range(_N_RANGES):
        number = (start + n) % _N_RANGES
        if number in usable and _is_locked(lock, number):
            return Range(number, lock)
    os.close(lock)
    raise SandboxError(f"no ids of its own: none of {len(usable):,} ranges is free")


def _is_locked(lock: int, number: int) -> bool:
    """Lock a byte, against this process's own other locks too; False where another has it."""
    wanted = _WRITE_LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
    try:
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, wanted)
    except BlockingIOError:
        return False
    return True


def _find_usable() -> set[int]:
    """Ranges that exist here, and of which no id is a user's or given to one."""
    usable = set(range(_N_RANGES))
    for path in _MAPS:
        # In a container that has not all ids of the machine, there are few or none.
        lines = [tuple(map(int, line.split())) for line in path.read_text("ascii").splitlines()]
        usable &= {n for inside, _, count in lines for n in _inside(inside, count)}
    for path in _USERS:
        if path.exists():
            for line in path.read_text("utf-8", "replace").splitlines():
                usable -= _given(path.name, line.split(":"))
    return usable


def _inside(first: int, count: int) -> range:
    """Ranges that lie wholly in these ids."""
    begin = max(0, -((FIRST_OF_RANGES - first) // RANGE))
    return range(begin, min(_N_RANGES, max(0, first + count - FIRST_OF_RANGES) // RANGE))


def _given(file: str, fields: list[str]) -> set[int]:
    """Ranges in which a line of one of the files has an id."""
    numbers = [int(field) for field in fields[1:4] if field.isascii() and field.isdecimal()]
    if not numbers:
        return set()
    count = numbers[1] if file.startswith("sub") and len(numbers) > 1 else 1
    first, last = numbers[0] - FIRST_OF_RANGES, numbers[0] + count - 1 - FIRST_OF_RANGES
    return set(range(max(0, first // RANGE), last // RANGE + 1)) if count > 0 else set()
