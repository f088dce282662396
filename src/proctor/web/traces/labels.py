"""The purpose of every turn of a trace, in a few bytes per turn."""

from array import array
from bisect import bisect_left

from proctor.traces.label_rules import Classifier
from proctor.traces.labels import Label
from proctor.traces.trajectory import read_pieces
from proctor.web.traces.lines import Lines


class Labels:
    """The labels of one trace, by step."""

    def __init__(self, given: tuple[Label, ...]) -> None:
        self._steps = array("q")
        self._kinds = array("H")
        self._combinations: list[tuple[str, str, float]] = []
        known: dict[tuple[str, str, float], int] = {}
        # There are few distinct combinations of label, cue and confidence, so each is stored once.
        for label in given:
            combination = (label.label, label.cue, label.confidence)
            kind = known.setdefault(combination, len(known))
            if kind == len(self._combinations):
                self._combinations.append(combination)
            self._steps.append(min(label.step, (1 << 62) - 1))
            self._kinds.append(kind)

    def find(self, step: int) -> tuple[str, str, float] | None:
        """The label of a step, the cue that decided it, and the confidence."""
        at = bisect_left(self._steps, step)
        is_there = at < len(self._steps) and self._steps[at] == step
        return self._combinations[self._kinds[at]] if is_there else None

    def count(self) -> dict[str, int]:
        """Number of turns with each label."""
        counts: dict[str, int] = {}
        for kind in self._kinds:
            name = self._combinations[kind][0]
            counts[name] = counts.get(name, 0) + 1
        return counts


def label_turns(lines: Lines) -> Labels:
    """Label the turns of a trace."""
    classifier = Classifier()
    for span, piece in lines.pieces():
        if isinstance(piece, bytes):
            for chunk in read_pieces([(span.line, piece)]):
                for entry in chunk.entries:
                    classifier.add(entry)
    return Labels(classifier.finish())
