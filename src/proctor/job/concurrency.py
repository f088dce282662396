"""`-n auto`: how many trials fit on this machine at once, by its hungriest task."""

import os
from collections.abc import Iterable
from pathlib import Path

from proctor.harbor.configs import EnvironmentConfig
from proctor.outcome.concurrency import size_concurrency
from proctor.task.directory import Task

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
