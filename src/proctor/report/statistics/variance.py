"""Variance of rewards: between attempts at one task, and between tasks.

A one-way analysis of variance with tasks as groups, which may have different numbers of attempts.
"""

from collections.abc import Mapping, Sequence

import msgspec

from proctor.report.statistics.intervals import finite_sum


class TaskSpread(msgspec.Struct, frozen=True):
    """The attempts at one task."""

    task: str
    n: int
    mean: float
    variance: float | None
    """Unbiased, between attempts; null for a single attempt."""
    low: float
    """The least reward."""
    high: float
    """The greatest reward."""

    @property
    def is_flaky(self) -> bool:
        """Whether attempts at it have different scores."""
        return self.low != self.high


class Spread(msgspec.Struct, frozen=True):
    """The variance of all attempts at tasks."""

    n_tasks: int
    n_trials: int
    within: float | None
    """Pooled variance between attempts at one task; null: no task has two attempts."""
    between: float | None
    """Variance between the means of tasks; null: fewer than two tasks, or `within` is unknown."""
    tasks: list[TaskSpread]

    @property
    def flaky(self) -> list[TaskSpread]:
        """The tasks whose attempts differ."""
        return [task for task in self.tasks if task.is_flaky]


def spread_of(tasks: Mapping[str, Sequence[float]]) -> Spread:
    """The variance of rewards by task; a task without rewards is left out."""
    found = [_spread_of_task(task, values) for task, values in tasks.items() if values]
    n_trials = sum(task.n for task in found)
    inner = [task for task in found if task.variance is not None]
    degrees = sum(task.n - 1 for task in inner)
    squares = finite_sum((task.n - 1) * (task.variance or 0.0) for task in inner)
    within = squares / degrees if degrees else None
    return Spread(
        n_tasks=len(found),
        n_trials=n_trials,
        within=within,
        between=_between(found, within),
        tasks=found,
    )


def _spread_of_task(task: str, values: Sequence[float]) -> TaskSpread:
    n = len(values)
    low, high = min(values), max(values)
    mean = low if low == high else finite_sum(values) / n
    squares = finite_sum((value - mean) * (value - mean) for value in values)
    return TaskSpread(task, n, mean, squares / (n - 1) if n > 1 else None, low, high)


def _between(tasks: Sequence[TaskSpread], within: float | None) -> float | None:
    """Variance of the means minus the part that variance within tasks explains; at least 0."""
    n_trials = sum(task.n for task in tasks)
    if len(tasks) < 2 or within is None:
        return None
    overall = finite_sum(task.n * task.mean for task in tasks) / n_trials
    squares = finite_sum(task.n * (task.mean - overall) * (task.mean - overall) for task in tasks)
    # The effective number of attempts of a task if tasks differ in it.
    usual = (n_trials - sum(task.n**2 for task in tasks) / n_trials) / (len(tasks) - 1)
    return max((squares / (len(tasks) - 1) - within) / usual, 0.0)
