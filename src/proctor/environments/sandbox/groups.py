"""Process groups of a sandbox, seen by its PID 1: signal one, tell whether it is dead, find one."""

import os
import signal
from collections.abc import Collection

_DEAD = b"ZX"


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a group, or a process that has not come to lead one yet; the dead are passed over."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        try:
            os.kill(leader, number)
        except ProcessLookupError:
            return


def is_alive(leader: int) -> bool:
    """Whether anything but zombies is left of a group, or of a process that is to lead one."""
    return any(_belongs(name, leader) for name in os.listdir("/proc") if name.isdecimal())


def _belongs(pid: str, leader: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        # It ended while we looked.
        return False
    return fields[0] not in _DEAD and leader in (int(pid), int(fields[2]))


def find_orphan(pipe: tuple[int, int], known: Collection[int]) -> int | None:
    """The command that writes to a pipe and whose parent died: PID 1 is its parent then."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                _, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
            is_ours = pid not in known and (int(parent), int(session)) == (1, pid)
            if is_ours and identity_of(os.stat(f"/proc/{pid}/fd/1")) == pipe:
                return pid
        except OSError:
            # It ended while we looked.
            continue
    return None


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """What tells a file from all others: its device and its inode."""
    return found.st_dev, found.st_ino
