"""Whole commands, from the start of the process to its end, imports and all."""

from collections.abc import Iterator

from benchmarks.bench import HARBOR, Bench, command_seconds, entry_point
from benchmarks.job_data import load_job_data
from benchmarks.row import Row, share_of, times_faster

_SOME_UNSCORED = 3
"""Exit code of `proctor score` when it did its work and some trials have no reward."""


def start_up_rows(bench: Bench) -> Iterator[Row]:
    """`proctor --help` beside `harbor --help`."""
    ours = entry_point("proctor.cli.main", "main", "--help")
    theirs = entry_point("harbor.cli.main", "app", "--help")
    figures = _least(bench, ours, theirs)
    yield share_of("start-up", figures, f"{HARBOR} --help", at_most=0.25)


def score_rows(bench: Bench, *, n_tasks: int = 89, n_attempts: int = 5) -> Iterator[Row]:
    """`proctor score` beside a process that imports harbor, loads the same, computes its stats.

    The second row is against the lighter loading of harbor's viewer, which reads less.
    """
    directory = str(load_job_data(bench, n_tasks, n_attempts).directory)
    name = f"score-{n_tasks * n_attempts}"
    ours = entry_point("proctor.cli.main", "main", "score", directory)
    figures = _least(bench, ours, ["-m", "benchmarks.theirs_uploader", "load", directory])
    yield times_faster(name, figures, f"{HARBOR}, its uploader's loading", at_least=5)
    figures = _least(bench, ours, ["-m", "benchmarks.theirs_viewer", "load", directory])
    yield times_faster(f"{name}-viewer", figures, f"{HARBOR}, its viewer's loading")


def _least(bench: Bench, ours: list[str], theirs: list[str]) -> tuple[float, float]:
    def our_seconds() -> float:
        return command_seconds(ours, exits=(0, _SOME_UNSCORED))

    def their_seconds() -> float:
        return command_seconds(theirs)

    # Once unmeasured: the first start compiles modules and fills the page cache.
    our_seconds()
    their_seconds()
    return bench.least(our_seconds, their_seconds)
