"""Counts in bounded memory, by name and of different steps, and the sums of several parts."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

MOST_NAMES: Final = 1000
OTHERS: Final = "(others)"
"""Stands for all names beyond the first thousand."""
_LONGEST: Final = 100


class Tally:
    """Counts by name."""

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
        """The sum of all counts."""
        return sum(self.counts.values())

    def ranked(self) -> dict[str, int]:
        """Most frequent first; ties by name."""
        return rank(self.counts)


def rank(counts: dict[str, int]) -> dict[str, int]:
    """Sort counts: most frequent first; ties by name."""
    # Most traces have one tool and one reason: nothing to sort.
    if len(counts) < 2:
        return counts
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def add_counts(*each: dict[str, int]) -> dict[str, int]:
    """Add up several counts."""
    tally = Tally()
    for counts in each:
        for name, times in counts.items():
            tally.add(name, times)
    return tally.ranked()


def count_names(names: Iterable[str]) -> dict[str, int]:
    """Count names, the most frequent first."""
    tally = Tally()
    for name in names:
        tally.add(name)
    return tally.ranked()


def merge_fields[Part: msgspec.Struct](parts: Sequence[Part], **given: Any) -> Part:
    """Merge the summaries of a trial's parts, at least one; `given` has fields with other rules.

    Counts and seconds are added up as far as they are known, counts by name too; lists are joined.
    """
    merged: dict[str, Any] = {}
    for name in parts[0].__struct_fields__:
        values = [getattr(part, name) for part in parts]
        known = [value for value in values if value is not None]
        if name in given:
            merged[name] = given[name]
        elif isinstance(values[0], dict):
            merged[name] = add_counts(*values)
        elif isinstance(values[0], tuple):
            merged[name] = tuple(chain.from_iterable(values))
        else:
            merged[name] = round(sum(known), 3) if known else None
    return type(parts[0])(**merged)


MOST_GAPS: Final = 1 << 16
"""Most gaps that are remembered; beyond it, steps inside a forgotten gap are not counted."""


class Steps:
    """Counts different steps above 0. Most traces count up, so only gaps are stored."""

    def __init__(self) -> None:
        self.count = 0
        self.is_exact = True
        """False once a gap was forgotten: there may be more steps."""
        self._highest = 0
        self._last = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        """Gaps below the highest step, in order, both ends inclusive."""

    def add(self, step: int) -> None:
        """Count a step, unless it was counted before."""
        if step == self._last or step < 1:
            return
        self._last = step
        highest = self._highest
        if step > highest:
            if step > highest + 1 and len(self._starts) < MOST_GAPS:
                self._starts.append(highest + 1)
                self._ends.append(step - 1)
            elif step > highest + 1:
                self.is_exact = False
            self._highest = step
            self.count += 1
        elif step != highest:
            # Gaps are sorted and disjoint: the first that ends at or after the step may hold it.
            at = bisect_left(self._ends, step)
            if at == len(self._ends) or self._starts[at] > step:
                return
            self.count += 1
            start, end = self._starts[at], self._ends[at]
            left = [(start, step - 1)] if start < step else []
            right = [(step + 1, end)] if step < end else []
            self._starts[at : at + 1] = [each for each, _ in left + right]
            self._ends[at : at + 1] = [each for _, each in left + right]
