"""The four labels of a turn, where an agent's reasoning is stored, and how far two labels agree.

A share of nothing is None, never 0. Two sets of labels of the same turns are compared by Cohen's
kappa.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from proctor.traces.entry import Object

EXECUTION: Final = "execution"
VERIFICATION: Final = "verification"
DELIBERATION: Final = "deliberation"
EXPLORATION: Final = "exploration"
LABELS: Final = (EXECUTION, VERIFICATION, DELIBERATION, EXPLORATION)
"""In the order used everywhere: for rows, for columns, and to break ties."""


class Label(msgspec.Struct, frozen=True, gc=False):
    """The label of one turn."""

    step: int
    """The turn."""
    label: str
    """One of LABELS."""
    cue: str
    """What decided, in a few fixed words; never text from the trace."""
    confidence: float
    """0 to 1: how certain the rules or the judge are, not how often they are right."""


def count_labels(labels: Iterable[str]) -> dict[str, int]:
    """Count the labels, all four in order."""
    counts = dict.fromkeys(LABELS, 0)
    for label in labels:
        counts[label] += 1
    return counts


def find_dominant(counts: dict[str, int]) -> str | None:
    """The most frequent label, the first in order among equals; None without labels."""
    best = max(LABELS, key=lambda label: counts[label])
    return best if counts[best] else None


def find_shares(counts: Mapping[str, int]) -> dict[str, float] | None:
    """Counts as shares of their sum; None if the sum is 0."""
    total = sum(counts.values())
    return {label: count / total for label, count in counts.items()} if total else None


_PLACES = (("conversation", "thinking"), ("atif", "reasoning_content"))


def list_thoughts(metadata: Object) -> Iterator[str]:
    """The reasoning in an entry's metadata."""
    for key, name in _PLACES:
        held = metadata.get(key)
        thought = held.get(name) if isinstance(held, dict) else None
        if isinstance(thought, str):
            yield thought


type Confusion = tuple[tuple[int, ...], ...]
"""Counts, 4 by 4 in the order of LABELS: rows are the first labels, columns the second."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement between two sets of labels of the same turns."""

    turns: int
    """Turns with both labels."""
    agreed: int
    """Turns with equal labels."""
    kappa: float | None
    """Cohen's kappa: agreement beyond chance, at most 1; null if undefined."""
    confusion: Confusion


def compare_labels(first: Sequence[str], second: Sequence[str]) -> Agreement:
    """Compare two labels of each turn, in the same order."""
    at = {label: place for place, label in enumerate(LABELS)}
    counts = [[0] * len(LABELS) for _ in LABELS]
    for one, other in zip(first, second, strict=True):
        counts[at[one]][at[other]] += 1
    return Agreement(
        turns=len(first),
        agreed=sum(row[place] for place, row in enumerate(counts)),
        kappa=find_kappa(counts),
        confusion=tuple(tuple(row) for row in counts),
    )


def find_kappa(counts: Sequence[Sequence[int]]) -> float | None:
    """Cohen's kappa of a square of counts; None if undefined."""
    total = sum(sum(row) for row in counts)
    if not total:
        return None
    agreed = sum(row[place] for place, row in enumerate(counts))
    columns: list[int] = [sum(column) for column in zip(*counts, strict=True)]
    # In whole numbers, so that full agreement by chance is detected exactly.
    by_chance = sum(sum(row) * columns[place] for place, row in enumerate(counts))
    if by_chance == total * total:
        return None
    return (agreed * total - by_chance) / (total * total - by_chance)
