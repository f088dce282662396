"""Whether directories of the host are still as they were, without reading their files again.

A file is known by its name, inode, size, mode and both of its times. What was changed a moment ago
is not relied on: it could change again within one tick of the file system's clock and look alike.
"""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_SETTLED_NS = 2_000_000_000
"""The coarsest clock of a file system in use ticks every two seconds."""

type Looks = list[tuple[str, int, int, int, int, int]]


class SeenTrees:
    """Directories that were found to be in order once."""

    def __init__(self) -> None:
        self._looks: Looks | None = None

    def look_alike(self, directories: Sequence[Path]) -> bool:
        """Whether nothing in them has changed since they were found to be in order."""
        return self._looks is not None and self._looks == find_looks(directories)

    def accept(self, looks: Looks | None, began_ns: int) -> None:
        """They were in order; this is how they looked before that was seen."""
        if looks is not None and all(max(each[4:]) < began_ns - _SETTLED_NS for each in looks):
            self._looks = looks


def find_looks(directories: Sequence[Path]) -> Looks | None:
    """What there is to be seen of directories from outside; None where one cannot be read."""
    try:
        return [seen for directory in directories for seen in _look(str(directory))]
    except OSError:
        return None


def now_ns() -> int:
    """The wall clock, as files are dated by it."""
    return time.time_ns()


def _look(directory: str) -> Iterator[tuple[str, int, int, int, int, int]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            found = entry.stat(follow_symlinks=False)
            times = found.st_mtime_ns, found.st_ctime_ns
            yield entry.path, found.st_ino, found.st_size, found.st_mode, *times
            if entry.is_dir(follow_symlinks=False):
                yield from _look(entry.path)
