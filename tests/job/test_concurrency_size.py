"""How many trials fit on a machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import PolicyError
from proctor.job.planning import size_concurrency

GIB = 1024 * 1024
AMPLE = 512 * GIB


@pytest.mark.parametrize(
    ("nproc", "cpus", "expected"), [(8, 2, 4), (8, 3, 2), (7, 2, 3), (12, 5, 2), (3, 1.5, 2)]
)
def test_processors_bind_where_memory_is_ample(nproc: int, cpus: float, expected: int) -> None:
    found = size_concurrency(nproc=nproc, mem_total_kib=AMPLE, task_cpus=cpus, task_memory_mb=64)
    assert found == expected


@pytest.mark.parametrize(
    ("kib", "memory_mb", "expected"),
    [(6 * GIB, 2048, 3), (8 * GIB, 2048, 4), (3 * GIB, 1024, 3), (3 * GIB - 1, 1024, 2)],
)
def test_memory_binds_where_processors_are_many(kib: int, memory_mb: int, expected: int) -> None:
    assert size_concurrency(nproc=64, mem_total_kib=kib, task_memory_mb=memory_mb) == expected


def test_a_task_that_says_nothing_takes_one_processor_and_two_gigabytes() -> None:
    assert size_concurrency(nproc=64, mem_total_kib=8 * GIB) == 4
    assert size_concurrency(nproc=3, mem_total_kib=AMPLE) == 3


def test_tiny_tasks_do_not_outnumber_the_processors() -> None:
    found = size_concurrency(nproc=4, mem_total_kib=AMPLE, task_cpus=0.25, task_memory_mb=1)
    assert found == 4


@pytest.mark.parametrize(
    ("nproc", "kib", "cpus"), [(2, AMPLE, 4), (8, GIB, 1), (1, 0, 1), (0, AMPLE, 1)]
)
def test_a_task_that_does_not_fit_runs_alone(nproc: int, kib: int, cpus: float) -> None:
    assert size_concurrency(nproc=nproc, mem_total_kib=kib, task_cpus=cpus) == 1


@pytest.mark.parametrize(
    ("cap", "expected"), [(None, 8), (100, 8), (8, 8), (3, 3), (1, 1), (0, 1), (-5, 1)]
)
def test_a_cap_lowers_and_never_raises(cap: int | None, expected: int) -> None:
    found = size_concurrency(nproc=8, mem_total_kib=AMPLE, task_memory_mb=64, cap=cap)
    assert found == expected


@pytest.mark.parametrize(("cpus", "memory_mb"), [(0, 1), (-1, 1), (1, 0), (1, -1)])
def test_a_task_that_asks_for_nothing_is_refused(cpus: float, memory_mb: int) -> None:
    with pytest.raises(PolicyError) as caught:
        size_concurrency(nproc=1, mem_total_kib=GIB, task_cpus=cpus, task_memory_mb=memory_mb)
    assert str(caught.value) == (
        f"a task asks for {cpus} cpus and {memory_mb} MiB; expected more than 0"
    )


def test_the_smallest_request_is_allowed() -> None:
    found = size_concurrency(nproc=2, mem_total_kib=1024, task_cpus=0.01, task_memory_mb=1)
    assert found == 1


@given(st.integers(1, 64), st.integers(0, AMPLE), st.floats(0.1, 8), st.integers(1, 8192))
def test_a_hungrier_task_never_gets_more_room(
    nproc: int, kib: int, cpus: float, memory_mb: int
) -> None:
    def size(factor: int) -> int:
        return size_concurrency(
            nproc=nproc,
            mem_total_kib=kib,
            task_cpus=cpus * factor,
            task_memory_mb=memory_mb * factor,
        )

    assert 1 <= size(2) <= size(1) <= nproc
