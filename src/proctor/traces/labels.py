"""The four labels of a turn, and where an agent's reasoning is stored."""

from collections.abc import Iterable, Iterator
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


_PLACES = (("conversation", "thinking"), ("atif", "reasoning_content"))


def list_thoughts(metadata: Object) -> Iterator[str]:
    """The reasoning in an entry's metadata."""
    for key, name in _PLACES:
        held = metadata.get(key)
        thought = held.get(name) if isinstance(held, dict) else None
        if isinstance(thought, str):
            yield thought
