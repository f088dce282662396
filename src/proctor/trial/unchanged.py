"""Detect whether directories on the host changed, without reading their files again.

A file is identified by its name, inode, size, mode and both timestamps. Recent changes are not
trusted: a file could change again within one tick of the file system's clock and look the same.
"""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

# The coarsest file system clock in use (FAT) ticks every two seconds.
_SETTLED_NS = 2_000_000_000

type Fingerprint = list[tuple[str, int, int, int, int, int]]


class SeenTrees:
    """Directories that were found unchanged once."""

    def __init__(self) -> None:
        self._fingerprint: Fingerprint | None = None

    def is_unchanged(self, directories: Sequence[Path]) -> bool:
        """Whether nothing in them has changed since they were accepted."""
        return self._fingerprint is not None and self._fingerprint == take_fingerprint(directories)

    def accept(self, fingerprint: Fingerprint | None, began_ns: int) -> None:
        """Accept directories as unchanged, by their fingerprint from before they were checked."""
        if fingerprint is not None and all(
            max(each[4:]) < began_ns - _SETTLED_NS for each in fingerprint
        ):
            self._fingerprint = fingerprint


def take_fingerprint(directories: Sequence[Path]) -> Fingerprint | None:
    """Fingerprint of directories; None if one cannot be read."""
    try:
        return [seen for directory in directories for seen in _look(str(directory))]
    except OSError:
        return None


def now_ns() -> int:
    """The wall clock that file timestamps use."""
    return time.time_ns()


def _look(directory: str) -> Iterator[tuple[str, int, int, int, int, int]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            found = entry.stat(follow_symlinks=False)
            times = found.st_mtime_ns, found.st_ctime_ns
            yield entry.path, found.st_ino, found.st_size, found.st_mode, *times
            if entry.is_dir(follow_symlinks=False):
                yield from _look(entry.path)
