"""Which process a run is, and whether it lives.

A run is one process that starts sandboxes. Its name says which process that is, so that whoever
finds what a killed run left needs no other file to tell it from a living one. Nothing here ends
anything.
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
    """When the process began, in clock ticks since the machine did."""
    namespace: int
    """The namespace in which the pid counts."""

    def __str__(self) -> str:
        return f"{self.pid}-{self.started}-{self.namespace}"

    @property
    def is_living(self) -> bool:
        """Whether the process may be alive; one of another namespace cannot be seen to be dead."""
        return self.namespace != _namespace() or _started(self.pid) == self.started


def this_run() -> RunId:
    """The name of this process."""
    pid = os.getpid()
    return RunId(pid, _started(pid) or 0, _namespace())


def parse_run_id(text: str) -> RunId | None:
    """The run of a name; None where the text is none."""
    found = _NAME.fullmatch(text)
    return RunId(int(found[1]), int(found[2]), int(found[3])) if found else None


def _namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _started(pid: int) -> int | None:
    """When a process began; None where there is none, or only what its parent has not buried."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program stands in brackets and may itself hold brackets and spaces.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in _DEAD_STATES else int(fields[19])
