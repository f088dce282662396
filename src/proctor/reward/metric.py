"""Mean, Max, Min and Sum over the trials of a group.

The only place where "no reward" becomes 0. With at most one reward key in the whole group the
result is named after the metric; with more it is named after the keys, sorted, and the metric's
name is lost. Both are harbor's rules.
"""

from collections.abc import Callable, Sequence

from proctor.reward.column import RewardColumn
from proctor.reward.number import Number, Rewards, exact_sum


def mean(values: Sequence[Number]) -> float:
    """Exact sum divided by the count. An empty sequence raises ZeroDivisionError."""
    return exact_sum(values) / len(values)


METRICS: dict[str, Callable[[Sequence[Number]], Number]] = {
    "mean": mean,
    "max": max,
    "min": min,
    "sum": exact_sum,
}
"""Built-in metrics. Max and min return the first of equal values, and depend on order for nan."""

DEFAULT_METRIC = "mean"


def operands(column: RewardColumn, name: str) -> dict[str, list[Number]]:
    """The numbers that a metric aggregates, by the name of each result."""
    if len(column.keys) <= 1:
        return {name: column.first}
    return {key: column.values(key) for key in sorted(column.keys)}


def compute_metric(name: str, column: RewardColumn) -> Rewards:
    """Compute one metric of a group.

    Raises:
        ZeroDivisionError, ValueError: the group has no trials.
        OverflowError: the integers are too large for a mean.
    """
    aggregate = METRICS[name]
    return {label: aggregate(values) for label, values in operands(column, name).items()}
