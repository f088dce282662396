"""Mean, Max, Min and Sum over the trials of a group.

The one place where "no reward" becomes 0. With at most one reward key in the whole group the
answer is named after the metric; with more it is named after the keys, sorted, and the metric's
own name is lost. Both are harbor's rules.
"""

from collections.abc import Callable, Sequence

from proctor.reward.column import RewardColumn
from proctor.reward.number import Number, Rewards, exact_sum


def mean(values: Sequence[Number]) -> float:
    """Exact sum over count; whole numbers are divided exactly. Empty is a ZeroDivisionError."""
    return exact_sum(values) / len(values)


METRICS: dict[str, Callable[[Sequence[Number]], Number]] = {
    "mean": mean,
    "max": max,
    "min": min,
    "sum": exact_sum,
}
"""The built-in metrics. Max and min keep the first of equals with its type, and nan as it falls."""

DEFAULT_METRIC = "mean"


def operands(column: RewardColumn, name: str) -> dict[str, list[Number]]:
    """What a metric adds up, by the name its result will have."""
    if len(column.keys) <= 1:
        return {name: column.first}
    return {key: column.values(key) for key in sorted(column.keys)}


def compute_metric(name: str, column: RewardColumn) -> Rewards:
    """One entry of a group's metrics.

    Raises:
        ZeroDivisionError, ValueError: there are no trials.
        OverflowError: whole numbers too large for a mean.
    """
    aggregate = METRICS[name]
    return {label: aggregate(values) for label, values in operands(column, name).items()}
