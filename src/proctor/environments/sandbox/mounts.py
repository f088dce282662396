"""What is mounted where, read from the kernel. Nothing here mounts or unmounts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    root: str
    """Which directory of the file system is mounted."""
    target: str
    kind: str
    """The file system: ext4, overlay, cgroup2."""
    options: str
    """Options of the file system itself, joined by commas."""


def list_mounts(pid: int | str = "self") -> list[Mount]:
    """The mounts of a process's namespace, in order; later ones cover earlier ones.

    Raises:
        OSError: there is no such process, or it may not be looked at.
    """
    return list(
        _parse(Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="replace"))
    )


def _parse(text: str) -> Iterator[Mount]:
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        first, last = before.split(" "), after.split(" ")
        if dash and len(first) > 4 and len(last) > 2:
            yield Mount(_plain(first[3]), _plain(first[4]), last[0], _plain(last[2]))


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def file_system_of(path: Path) -> str:
    """The kind of file system that a path is on."""
    real = path.resolve()
    best = Mount("/", "/", "unknown", "")
    for mount in list_mounts():
        if real.is_relative_to(mount.target) and len(mount.target) >= len(best.target):
            best = mount
    return best.kind
