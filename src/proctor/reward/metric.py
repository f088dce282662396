"""The rewards of a group of trials as columns, and Mean, Max, Min and Sum over them.

The only place where "no reward" becomes 0. With at most one reward key in the whole group the
result is named after the metric; with more it is named after the keys, sorted, and the metric's
name is lost. Both are harbor's rules.
"""

from collections.abc import Callable, Iterable, Sequence

from proctor.reward.number import Number, Rewards, exact_sum


class RewardColumn:
    """Rewards of the trials of one group, in order; None for a trial without rewards.

    A column is built once, in the order in which the numbers are added, and only read afterwards:
    the order decides the last bits of a float sum.
    """

    __slots__ = ("first", "keys", "n_scored", "n_single", "rewards")

    def __init__(self, rewards: Iterable[Rewards | None] = ()) -> None:
        self.rewards: list[Rewards | None] = []
        self.first: list[Number] = []
        """Each trial's first reward; 0 if it has none, which is how harbor counts it."""
        self.keys: dict[str, None] = {}
        """Every reward key seen, in order of appearance."""
        self.n_scored = 0
        """Trials whose rewards are not None; they may still be empty."""
        self.n_single = 0
        """Trials with exactly one reward."""
        for item in rewards:
            self.append(item)

    def append(self, rewards: Rewards | None) -> None:
        """Add the next trial."""
        self.rewards.append(rewards)
        if not rewards:
            self.first.append(0)
            self.n_scored += rewards is not None
            return
        self.n_scored += 1
        self.n_single += len(rewards) == 1
        keys = self.keys
        for key in rewards:
            if key not in keys:
                keys[key] = None
        self.first.append(next(iter(rewards.values())))

    def values(self, key: str) -> list[Number]:
        """Each trial's reward under a key; 0 if it has none."""
        return [rewards.get(key, 0) if rewards else 0 for rewards in self.rewards]

    def __len__(self) -> int:
        return len(self.rewards)


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
    """Compute one metric of a group."""
    aggregate = METRICS[name]
    return {label: aggregate(values) for label, values in operands(column, name).items()}
