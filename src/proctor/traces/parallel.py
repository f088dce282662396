"""Apply a function to many files, on all processors.

Sending entries between processes would cost more than reading them: a worker reads a file, and only
its result comes back.
"""

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

# Below 32 MiB in total, starting another process takes longer than it saves.
_WORTH_IT = 1 << 25
# PR_SET_PDEATHSIG of prctl(2).
_ON_PARENTS_DEATH = 1
# Batches per process: enough that no process waits long for the slowest one.
_BATCHES = 8


def map_paths[Answer](
    ask: Callable[[str], Answer], paths: Sequence[str], processes: int | None = None
) -> Iterator[Answer]:
    """Call `ask` for each file, in order. `ask` must be a module-level function.

    Errors that `ask` raises are raised here. Without `processes`, small amounts are read in this
    process, and large ones in as many processes as there are processors.
    """
    workers = min(_worth(paths) if processes is None else processes, len(paths))
    if workers < 2:
        yield from map(ask, paths)
        return
    batch = max(1, len(paths) // (workers * _BATCHES))
    # Forked, because a fresh interpreter spends its first fifth of a second importing.
    forked = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, forked, end_with_parent, (os.getpid(),)) as pool:
        yield from pool.map(ask, paths, chunksize=batch)


def count_processors() -> int:
    """Count the processors that this process may use, which a container can limit."""
    # macOS cannot bind a process to processors: all of them may be used.
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends for any reason."""
    # A worker must not outlive a killed parent: nobody would collect its result.
    with suppress(AttributeError):  # only Linux has prctl
        ctypes.CDLL(None).prctl(_ON_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _worth(paths: Sequence[str]) -> int:
    total = 0
    for path in paths:
        try:
            total += Path(path).stat().st_size
        except (OSError, ValueError):
            continue  # the reader of the file reports it
    return count_processors() if total >= _WORTH_IT else 1
