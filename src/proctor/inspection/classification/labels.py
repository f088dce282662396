"""The four labels, and one label of one turn."""

from collections.abc import Iterable
from typing import Final

import msgspec

EXECUTION: Final = "execution"
VERIFICATION: Final = "verification"
DELIBERATION: Final = "deliberation"
EXPLORATION: Final = "exploration"
LABELS: Final = (EXECUTION, VERIFICATION, DELIBERATION, EXPLORATION)
"""In the order in which they stand everywhere: rows, columns, and who wins a tie of counts."""


class Label(msgspec.Struct, frozen=True, gc=False):
    """What one turn was for."""

    step: int
    """The turn."""
    label: str
    """One of LABELS."""
    cue: str
    """What decided, in a few words; fixed words only, never text of the trace."""
    confidence: float
    """0 to 1; how sure whoever gave it is, not how often they are right."""


def count_labels(labels: Iterable[str]) -> dict[str, int]:
    """How often each label is there, all four in their order."""
    counts = dict.fromkeys(LABELS, 0)
    for label in labels:
        counts[label] += 1
    return counts


def find_dominant(counts: dict[str, int]) -> str | None:
    """The most frequent label, of equals the first in order; None where there is none at all."""
    best = max(LABELS, key=lambda label: counts[label])
    return best if counts[best] else None
