"""How often a job's result.json changes while the job runs."""

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Watched:
    """What was seen of the file."""

    changes: int = 0
    files: set[int] = field(default_factory=set)
    """Its inodes: a file that is replaced is another each time."""
    seconds: float = 0.0
    """From the first sight to the last change."""


@contextlib.contextmanager
def watch_result(job: Path) -> Iterator[Watched]:
    """Look at a job's result a thousand times a second."""
    seen, over = Watched(), threading.Event()
    thread = threading.Thread(target=_look, args=(job / "result.json", seen, over))
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _look(path: Path, seen: Watched, over: threading.Event) -> None:
    before: tuple[int, int] | None = None
    began = time.monotonic()
    while not over.wait(0.001):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        now = (status.st_ino, status.st_mtime_ns)
        if now == before:
            continue
        if before is None:
            began = time.monotonic()
        before = now
        seen.changes += 1
        seen.files.add(status.st_ino)
        seen.seconds = time.monotonic() - began
