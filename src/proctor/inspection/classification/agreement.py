"""How far two sets of labels agree: which was given where the other was, and Cohen's kappa."""

from collections.abc import Sequence

import msgspec

from proctor.inspection.classification.labels import LABELS

type Confusion = tuple[tuple[int, ...], ...]
"""Counts, 4 by 4 in the order of LABELS: a row for what the first said, a column for the second."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two sets of labels of the same turns, held against each other."""

    turns: int
    """Turns that both have a label for."""
    agreed: int
    """Turns that both gave the same."""
    kappa: float | None
    """Cohen's: agreement beyond chance, 1 at most; null where chance alone agrees everywhere."""
    confusion: Confusion


def compare_labels(first: Sequence[str], second: Sequence[str]) -> Agreement:
    """Two labels of each turn, in the same order."""
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
    """Cohen's kappa of a square of counts; None where it is not defined."""
    total = sum(sum(row) for row in counts)
    if not total:
        return None
    agreed = sum(row[place] for place, row in enumerate(counts))
    columns: list[int] = [sum(column) for column in zip(*counts, strict=True)]
    # In whole numbers, so that "chance agrees everywhere" is found exactly.
    by_chance = sum(sum(row) * columns[place] for place, row in enumerate(counts))
    if by_chance == total * total:
        return None
    return (agreed * total - by_chance) / (total * total - by_chance)
