"""pass@k and pass^k over tasks, with intervals: at least one of k attempts passes, or all k do.

Both are unbiased from n attempts with c successes: 1 - C(n-c, k) / C(n, k), and C(c, k) / C(n, k).
The pass@k that harbor publishes is in `reward.passk`, which also computes the estimate of a task.
"""

from collections.abc import Callable, Mapping, Sequence
from math import comb, fsum

import msgspec

from proctor.errors import StatisticsError
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.intervals import Interval
from proctor.reward.passk import estimate


class PassEstimate(msgspec.Struct, frozen=True):
    """pass@k or pass^k over tasks."""

    k: int
    value: float | None
    """The mean over tasks; null if no task has k attempts."""
    interval: Interval | None
    """By resampling tasks; null below 2 tasks, or if all have the same value."""
    n_tasks: int
    """Tasks included."""
    n_trials: int
    """Their attempts."""
    too_few: list[str]
    """Tasks left out because they have fewer than k attempts."""


def pass_at(k: int, tasks: Mapping[str, Sequence[bool]]) -> PassEstimate:
    """pass@k: the probability that at least one of k attempts passes, averaged over tasks."""
    return _estimate(k, tasks, estimate)


def pass_all(k: int, tasks: Mapping[str, Sequence[bool]]) -> PassEstimate:
    """pass^k: the probability that all of k attempts pass, averaged over tasks."""
    return _estimate(k, tasks, estimate_all)


def estimate_all(attempts: int, successes: int, k: int) -> float:
    """pass^k of one task."""
    return comb(successes, k) / comb(attempts, k)


def _estimate(
    k: int,
    tasks: Mapping[str, Sequence[bool]],
    of_task: Callable[[int, int, int], float],
) -> PassEstimate:
    if k < 1:
        raise StatisticsError(f"k is {k}; expected 1 or more")
    enough = {task: passed for task, passed in tasks.items() if len(passed) >= k}
    values = [of_task(len(passed), sum(map(bool, passed)), k) for passed in enough.values()]
    return PassEstimate(
        k=k,
        value=fsum(values) / len(values) if values else None,
        interval=cluster_bootstrap([[value] for value in values]),
        n_tasks=len(enough),
        n_trials=sum(map(len, enough.values())),
        too_few=[task for task in tasks if task not in enough],
    )
