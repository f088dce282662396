"""Process groups of a sandbox, seen by its PID 1: signal one, and tell whether it is dead."""

import os
import signal

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
