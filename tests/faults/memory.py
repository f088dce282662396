"""What a running process holds: memory and open files."""

import re
from contextlib import suppress
from pathlib import Path


def peak_mib(pid: int) -> float:
    """The most memory that it ever had; 0 when it has gone."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text()
        if found := re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE):
            return int(found[1]) / 1024
    return 0.0


def n_open_files(pid: int) -> int:
    """How many files it has open; 0 when it has gone."""
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return 0
