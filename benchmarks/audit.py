"""Auditing a job beside merely scoring it: what it costs to see whether the numbers follow.

Both are ours, no harbor is run. From the directory on disk to the answer in memory; imports are not
counted, so that start-up does not hide growth.
"""

from collections.abc import Iterator, Sequence

from benchmarks.bench import Bench, check_same, figure, run_module
from benchmarks.job_data import load_job_data
from benchmarks.row import Row, share_of
from benchmarks.sizes import LINEAR, name_of_size


def audit_rows(
    bench: Bench, *, sizes: Sequence[int] = (1_000, 10_000), n_tasks: int = 100
) -> Iterator[Row]:
    """A row a size, the largest with the bar, and how our time grows over the last step."""
    ours: dict[int, float] = {}
    for size in sizes:
        figures = _least(bench, n_tasks, size // n_tasks)
        ours[size] = figures[0]
        bar = 6 if size == max(sizes) else None
        other = "our own score of the same job"
        yield share_of(f"audit-{name_of_size(size)}", figures, other, at_most=bar)
    small, large = sorted(sizes)[-2:]
    steps = large / small
    figures = (ours[large], steps * ours[small])
    other = f"{steps:g} times ours at {name_of_size(small)}"
    yield share_of("audit-growth", figures, other, at_most=LINEAR)


def _least(bench: Bench, n_tasks: int, n_attempts: int) -> tuple[float, float]:
    """Least times of an audit that finds nothing and of a score, of a fresh process each."""
    directory = str(load_job_data(bench, n_tasks, n_attempts).directory)

    def seconds(task: str) -> float:
        answer = run_module("ours", task, directory)
        check_same(f"{directory}: trials", answer["trials"], n_tasks * n_attempts)
        if task == "audit":
            check_same(f"{directory}: follows", answer["follows"], theirs=True)
        return figure(answer, "seconds")

    return bench.least(lambda: seconds("audit"), lambda: seconds("load"))
