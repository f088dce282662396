"""Names of runs, and whether a run is alive.

A run is one process that starts sandboxes. Its name identifies the process, so that the reaper
needs no other file to tell a dead run from a live one.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)")
_DEAD_STATES = "ZX"


@dataclass(frozen=True, slots=True)
class RunId:
    """The name of a run."""

    pid: int
    started: int
    """Start time of the process, in clock ticks since boot."""
    namespace: int
    """Inode of its pid namespace."""

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}-{self.namespace}"

    @property
    def is_living(self) -> bool:
        """Whether the process may be alive; always true for another pid namespace."""
        return self.namespace != _namespace() or _started(self.pid) == self.started


def this_run() -> RunId:
    """Return the name of this process."""
    pid = os.getpid()
    return RunId(pid, _started(pid) or 0, _namespace())


def parse_run_id(text: str) -> RunId | None:
    """Parse the name of a run; None if it is not one."""
    found = _NAME.fullmatch(text)
    return RunId(int(found[1]), int(found[2]), int(found[3])) if found else None


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _started(pid: int) -> int | None:
    """Return the start time of a process; None if it does not exist or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The program's name is in parentheses, and may itself contain parentheses and spaces.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in _DEAD_STATES else int(fields[19])
