"""How well the rules label turns that a person has labelled.

    python -m tests.traces.labelled DIRECTORY [--wrong]

A directory holds trajectories, `labels.jsonl` with one label for each of their turns, and
`labels-doubtful.jsonl` with the turns on which a second person could well choose another one.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.traces.label_rules import RULES_VERSION, classify
from proctor.traces.labels import LABELS, Agreement, compare_labels
from proctor.traces.trajectory import load_trajectory


@dataclass(frozen=True)
class Turn:
    """One labelled turn, and what the rules say of it."""

    trace: str
    step: int
    right: str
    other: str | None
    """A label that a second person could have chosen."""
    given: str
    cue: str


@dataclass(frozen=True)
class Measured:
    """How far the rules are right."""

    turns: list[Turn]

    @property
    def agreement(self) -> Agreement:
        """Rows are what is right, columns what the rules say."""
        return compare_labels([t.right for t in self.turns], [t.given for t in self.turns])

    @property
    def accuracy(self) -> float:
        return self.agreement.agreed / len(self.turns)

    @property
    def lenient(self) -> float:
        """Accuracy where the other label of a doubtful turn counts as well."""
        return sum(t.given in (t.right, t.other) for t in self.turns) / len(self.turns)

    def precision(self, label: str) -> float | None:
        """How often the label is right where it is given."""
        given = [t for t in self.turns if t.given == label]
        return sum(t.right == label for t in given) / len(given) if given else None

    def recall(self, label: str) -> float | None:
        """How often the label is given where it is right."""
        right = [t for t in self.turns if t.right == label]
        return sum(t.given == label for t in right) / len(right) if right else None


def measure(directory: Path) -> Measured:
    """Every labelled turn of a directory, held against the rules."""
    wanted = {
        (row["trace"], row["step"]): row["label"] for row in _rows(directory / "labels.jsonl")
    }
    doubtful = {
        (row["trace"], row["step"]): row for row in _rows(directory / "labels-doubtful.jsonl")
    }
    given = {
        (path.stem, label.step): label
        for path in sorted(directory.glob("*.jsonl"))
        if not path.stem.startswith("labels")
        for label in classify(load_trajectory(str(path)).entries)
    }
    assert given.keys() == wanted.keys()
    return Measured(
        [
            Turn(*key, right, _other(doubtful.get(key)), given[key].label, given[key].cue)
            for key, right in wanted.items()
        ]
    )


def _other(row: dict[str, Any] | None) -> str | None:
    return None if row is None else row["alternative"]


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def render(measured: Measured) -> Iterator[str]:
    """The figures as they stand in the documents."""
    found = measured.agreement
    yield (
        f"Rules {RULES_VERSION}, {found.turns} turns: accuracy {measured.accuracy:.3f}, with the "
        f"other label of doubtful turns accepted {measured.lenient:.3f}, kappa "
        f"{_shown(found.kappa)}."
    )
    yield ""
    yield f"| right ↓, given → | {' | '.join(LABELS)} | recall | precision |"
    yield f"|---|{'---|' * (len(LABELS) + 2)}"
    for label, row in zip(LABELS, found.confusion, strict=True):
        shares = [_shown(measured.recall(label)), _shown(measured.precision(label))]
        yield f"| {label} | {' | '.join([*map(str, row), *shares])} |"


def _shown(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"


if __name__ == "__main__":
    whole = measure(Path(sys.argv[1]))
    lines = [*render(whole)]
    if "--wrong" in sys.argv:
        lines += [str(turn) for turn in whole.turns if turn.given != turn.right]
    sys.stdout.write("\n".join([*lines, ""]))
