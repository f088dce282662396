"""aec-bench's matrices, ideal sequence, similarity and edit distance."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from proctor.inspection.classification.labels import LABELS
from proctor.inspection.classification.structure import count_edits, count_transitions

REFERENCE_REWARD: Final = 1.0
_TINY: Final = 1e-12
_DIGITS: Final = 6


class CompatRun(msgspec.Struct, frozen=True):
    """A labelled trial."""

    trace_id: str
    reward: float | None
    bonds: tuple[str, ...]


class CompatMatrix(msgspec.Struct, frozen=True):
    """Transitions as shares; a row without any is all 0."""

    labels: tuple[str, ...]
    matrix: tuple[tuple[float, ...], ...]
    sample_count: int
    """Labelled turns, not transitions."""


class CompatScore(msgspec.Struct, frozen=True):
    """A run held against the references."""

    cosine_similarity: float
    edit_distance: int
    normalized_edit_distance: float


def make_matrix(bonds: Sequence[str]) -> CompatMatrix:
    """The transitions of one run."""
    counts = count_transitions(bonds)
    rows = tuple(tuple(count / (sum(row) or 1) for count in row) for row in counts)
    return CompatMatrix(LABELS, rows, len(bonds))


def find_references(runs: Sequence[CompatRun]) -> list[CompatRun]:
    """Runs with the full reward, of all tasks together."""
    return [run for run in runs if run.bonds and (run.reward or 0.0) >= REFERENCE_REWARD]


def average_matrix(runs: Sequence[CompatRun]) -> CompatMatrix | None:
    """The references' matrices, weighted by turns; None, where it crashes, without any."""
    matrices = [make_matrix(run.bonds) for run in find_references(runs)]
    total = sum(matrix.sample_count for matrix in matrices)
    if not total:
        return None
    rows = tuple(
        tuple(
            sum(each.matrix[row][column] * each.sample_count for each in matrices) / total
            for column in range(len(LABELS))
        )
        for row in range(len(LABELS))
    )
    return CompatMatrix(LABELS, rows, total)


def find_ideal_sequence(runs: Sequence[CompatRun]) -> tuple[str, ...]:
    """The most frequent whole sequence of the references; then the longer, then by names."""
    counts = Counter(run.bonds for run in find_references(runs))
    ranked = sorted(counts, key=lambda bonds: (-counts[bonds], -len(bonds), bonds))
    return ranked[0] if ranked else ()


def score_run(bonds: Sequence[str], reference: CompatMatrix, ideal: Sequence[str]) -> CompatScore:
    """How a run compares with the references, itself among them where it is one."""
    edits = count_edits(bonds, ideal)
    return CompatScore(
        round(_cosine(make_matrix(bonds), reference), _DIGITS),
        edits,
        round(edits / max(len(bonds), len(ideal), 1), _DIGITS),
    )


def _cosine(first: CompatMatrix, second: CompatMatrix) -> float:
    one = [share for row in first.matrix for share in row]
    other = [share for row in second.matrix for share in row]
    lengths = math.sqrt(sum(x * x for x in one)), math.sqrt(sum(x * x for x in other))
    if min(lengths) <= _TINY:
        return 0.0
    return sum(x * y for x, y in zip(one, other, strict=True)) / (lengths[0] * lengths[1])
