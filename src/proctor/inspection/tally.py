"""Counts by name. Names come from traces: beyond so many different ones, all further are one."""

from typing import Final

MOST_NAMES: Final = 1000
OTHERS: Final = "(others)"
"""Stands for every name beyond the first thousand."""
_LONGEST: Final = 100


class Tally:
    """How often each name was seen."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, name: str, times: int = 1) -> None:
        """Count one name."""
        counts = self.counts
        if name in counts:
            counts[name] += times
            return
        name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        name = name if name in counts or len(counts) < MOST_NAMES else OTHERS
        counts[name] = counts.get(name, 0) + times

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def ranked(self) -> dict[str, int]:
        """The most frequent first; equals by name."""
        return rank(self.counts)


def rank(counts: dict[str, int]) -> dict[str, int]:
    """The most frequent first; equals by name."""
    if len(counts) < 2:
        return counts
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def add_counts(*each: dict[str, int]) -> dict[str, int]:
    """Several counts as one."""
    tally = Tally()
    for counts in each:
        for name, times in counts.items():
            tally.add(name, times)
    return tally.ranked()
