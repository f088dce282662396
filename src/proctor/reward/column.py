"""The rewards of many trials as columns, so that a hundred thousand are summed in one call.

A column is built once, in the order in which the numbers are added, and only read afterwards:
the order decides the last bits of a float sum.
"""

from collections.abc import Iterable

from proctor.reward.number import Number, Rewards


class RewardColumn:
    """Rewards of the trials of one group, in order; None for a trial without rewards."""

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
