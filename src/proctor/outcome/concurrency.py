"""How many trials fit on a machine at once. It measures nothing: the sizes come in."""

import math

from proctor.errors import PolicyError

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
