"""A job directory on disk to stats in memory: time and peak memory. Imports are not counted.

Ours reads every reward file and compares it with the trial result; harbor's own loading does not.
Growth is shown up to 100,000 trials, of which writing the directories takes the longest.
"""

from collections.abc import Iterator, Sequence

from benchmarks.bench import HARBOR, Bench, check_same, figure, run_module
from benchmarks.job_data import load_job_data
from benchmarks.row import Row, share_of, times_faster
from benchmarks.sizes import LINEAR, name_of_size


def load_rows(
    bench: Bench,
    *,
    sizes: Sequence[int] = (1_000, 10_000, 100_000),
    judged: int = 10_000,
    n_tasks: int = 100,
) -> Iterator[Row]:
    """A row a size, the judged one with bars for time and memory, and how our time grows."""
    ours: dict[int, float] = {}
    for size in sizes:
        times, memory = _least(bench, n_tasks, size // n_tasks)
        ours[size] = times[0]
        name = f"load-{name_of_size(size)}"
        at_least, at_most = (3, 0.33) if size == judged else (None, None)
        yield times_faster(name, times, HARBOR, at_least=at_least)
        yield share_of(f"{name}-memory", memory, HARBOR, at_most=at_most, unit="MB")
    small, large = sorted(sizes)[-2:]
    steps = large / small
    other = f"{steps:g} times ours at {name_of_size(small)}"
    yield share_of("load-growth", (ours[large], steps * ours[small]), other, at_most=LINEAR)


def _least(
    bench: Bench, n_tasks: int, n_attempts: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Least times and least peaks, of a fresh process each."""
    job = load_job_data(bench, n_tasks, n_attempts)
    n_trials = n_tasks * n_attempts
    peaks: dict[str, list[float]] = {"ours": [], "theirs_viewer": []}

    def seconds(program: str) -> float:
        answer = run_module(program, "load", str(job.directory))
        check_same(f"{job.directory}: trials", answer["trials"], n_trials)
        if program == "ours":
            check_same(str(job.directory), answer["digest"], job.digest)
        peaks[program].append(figure(answer, "megabytes"))
        return figure(answer, "seconds")

    rounds = 2 if n_trials > 10_000 else bench.rounds
    times = bench.least(lambda: seconds("ours"), lambda: seconds("theirs_viewer"), rounds=rounds)
    return times, (min(peaks["ours"]), min(peaks["theirs_viewer"]))
