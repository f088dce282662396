"""`-n auto`: how many trials fit on this machine at once, by the task that needs the most."""

import math
import os
from collections.abc import Iterable
from pathlib import Path

from proctor.errors import PolicyError
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.directory import Task

_KIB_PER_MB = 1024


def size_concurrency(
    *,
    nproc: int,
    mem_total_kib: int,
    task_cpus: float = 1.0,
    task_memory_mb: int = 2048,
    cap: int | None = None,
) -> int:
    """Trials at once by processors and memory of the hungriest task; a cap can only lower it.

    At least 1, even where not one task fits, and never more than there are processors.

    Raises:
        PolicyError: a task asks for no processor or no memory.
    """
    if task_cpus <= 0 or task_memory_mb <= 0:
        raise PolicyError(
            f"a task asks for {task_cpus} cpus and {task_memory_mb} MB; expected more than 0"
        )
    by_processor = math.floor(nproc / task_cpus)
    by_memory = mem_total_kib // (task_memory_mb * _KIB_PER_MB)
    fits = min(by_processor, by_memory, nproc)
    return max(1, fits if cap is None else min(fits, cap))


_DEFAULT_CPUS = 1
_DEFAULT_MEMORY_MB = 2048
_MEMORY = Path("/proc/meminfo")


def find_concurrency(tasks: Iterable[Task], environment: EnvironmentConfig) -> int:
    """Trials at once, each having what the hungriest task asks for, or 1 cpu and 2 GB."""
    wanted = [task.config.environment for task in tasks]
    cpus = environment.override_cpus or max(
        (table.cpus or _DEFAULT_CPUS for table in wanted), default=_DEFAULT_CPUS
    )
    memory = environment.override_memory_mb or max(
        (table.memory_mb or _DEFAULT_MEMORY_MB for table in wanted), default=_DEFAULT_MEMORY_MB
    )
    return size_concurrency(
        nproc=len(os.sched_getaffinity(0)),
        mem_total_kib=_total_memory_kib(),
        task_cpus=cpus,
        task_memory_mb=memory,
    )


def _total_memory_kib() -> int:
    for line in _MEMORY.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0])
    return 0
