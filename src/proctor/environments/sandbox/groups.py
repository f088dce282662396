"""Process groups of a sandbox, seen by its PID 1: signal one, tell whether it is dead, find one."""

import os
import signal
from collections.abc import Collection

from proctor.environments.sandbox.processes import find_living, read_stat


def signal_group(leader: int, number: signal.Signals) -> None:
    """Signal a group, or a process that has not come to lead one yet; the dead are passed over.

    A process whose first thread has ended is signalled like any other.
    """
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        try:
            os.kill(leader, number)
        except ProcessLookupError:
            return


def is_alive(leader: int) -> bool:
    """Whether a thread is left of a group, or of a process that is to lead one; zombies are not."""
    return any(_belongs(name, leader) for name in os.listdir("/proc") if name.isdecimal())


def _belongs(pid: str, leader: int) -> bool:
    try:
        fields = read_stat(f"/proc/{pid}")[1]
    except OSError:
        # It ended while we looked.
        return False
    return leader in (int(pid), int(fields[2])) and find_living(pid, fields) is not None


def find_orphan(pipe: tuple[int, int], known: Collection[int]) -> int | None:
    """The command that writes to a pipe and whose parent died: PID 1 is its parent then."""
    for pid in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        try:
            fields = read_stat(f"/proc/{pid}")[1]
            is_ours = pid not in known and (int(fields[1]), int(fields[3])) == (1, pid)
            place = find_living(pid, fields) if is_ours else None
            if place is not None and identity_of(os.stat(f"{place}/fd/1")) == pipe:
                return pid
        except OSError:
            # It ended while we looked.
            continue
    return None


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """What tells a file from all others: its device and its inode."""
    return found.st_dev, found.st_ino
