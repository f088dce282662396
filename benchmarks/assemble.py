"""Trials in memory to final stats: reward_stats, the mean, pass@k. The bytes must be equal."""

from collections.abc import Iterator, Sequence

from benchmarks.bench import HARBOR, Bench, check_same, figure, run_module
from benchmarks.row import Row, share_of, times_faster
from benchmarks.sizes import LINEAR, name_of_size

_TIMES = 3
"""Measurements within one process, beside the rounds of processes."""


def assemble_rows(
    bench: Bench, *, sizes: Sequence[int] = (1_000, 10_000, 100_000), n_tasks: int = 100
) -> Iterator[Row]:
    """A row a size, the largest with the bar, and how our time grows over the last step."""
    ours: dict[int, float] = {}
    for size in sizes:
        figures = _least(bench, n_tasks, size // n_tasks)
        ours[size] = figures[0]
        bar = 10 if size == max(sizes) else None
        yield times_faster(f"assemble-{name_of_size(size)}", figures, HARBOR, at_least=bar)
    small, large = sorted(sizes)[-2:]
    steps = large / small
    figures = (ours[large], steps * ours[small])
    other = f"{steps:g} times ours at {name_of_size(small)}"
    yield share_of("assemble-growth", figures, other, at_most=LINEAR)


def _least(bench: Bench, n_tasks: int, n_attempts: int) -> tuple[float, float]:
    digests: dict[str, object] = {}

    def seconds(program: str) -> float:
        sizes = (str(n_tasks), str(n_attempts), str(_TIMES))
        answer = run_module(program, "assemble", *sizes)
        digests[program] = answer["digest"]
        return figure(answer, "seconds")

    figures = bench.least(lambda: seconds("ours"), lambda: seconds("theirs"), rounds=3)
    check_same(f"assembling {n_tasks} x {n_attempts} trials", digests["ours"], digests["theirs"])
    return figures
