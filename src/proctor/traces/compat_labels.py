"""aec-bench's report of an experiment's behaviour, exactly as it computes it.

Its mistakes are kept, so that its numbers can be reproduced: references are compared with
themselves and pooled over all tasks, rows of averaged matrices need not sum to 1, and undefined
values are 0. behaviour.py has the corrected definitions.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from proctor.traces.behaviour import LabelledRun, count_edits, count_transitions
from proctor.traces.labels import LABELS, count_labels, find_dominant

REFERENCE_REWARD: Final = 1.0
_TINY: Final = 1e-12
_DIGITS: Final = 6
_SCORES: Final = ("cosine_similarity", "edit_distance", "normalized_edit_distance")


class CompatMatrix(msgspec.Struct, frozen=True):
    """Transitions as shares; a row without any is all 0."""

    labels: tuple[str, ...]
    matrix: tuple[tuple[float, ...], ...]
    sample_count: int
    """Labelled turns, not transitions."""


def make_matrix(bonds: Sequence[str]) -> CompatMatrix:
    """The transitions of one run."""
    counts = count_transitions(bonds)
    # A row without transitions is all 0 there, not undefined.
    rows = tuple(tuple(count / (sum(row) or 1) for count in row) for row in counts)
    return CompatMatrix(LABELS, rows, len(bonds))


def list_references(runs: Sequence[LabelledRun]) -> list[LabelledRun]:
    """Runs with the full reward, of all tasks together."""
    return [run for run in runs if run.labels and (run.reward or 0.0) >= REFERENCE_REWARD]


def average_matrix(runs: Sequence[LabelledRun]) -> CompatMatrix | None:
    """The references' matrices, weighted by turns; None without any, where aec-bench crashes."""
    matrices = [make_matrix(run.labels) for run in list_references(runs)]
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


def find_ideal_sequence(runs: Sequence[LabelledRun]) -> tuple[str, ...]:
    """The most frequent complete sequence of the references; ties: the longer, then by name."""
    counts = Counter(run.labels for run in list_references(runs))
    ranked = sorted(counts, key=lambda bonds: (-counts[bonds], -len(bonds), bonds))
    return ranked[0] if ranked else ()


def score_run(
    bonds: Sequence[str], reference: CompatMatrix | None, ideal: Sequence[str]
) -> dict[str, float | None]:
    """Compare a run with the references, which may include the run itself."""
    if reference is None or not bonds:
        return dict.fromkeys(_SCORES)
    edits = count_edits(bonds, ideal)
    cosine = round(_cosine(make_matrix(bonds), reference), _DIGITS)
    share = round(edits / max(len(bonds), len(ideal), 1), _DIGITS)
    return dict(zip(_SCORES, (cosine, edits, share), strict=True))


def _cosine(first: CompatMatrix, second: CompatMatrix) -> float:
    one = [share for row in first.matrix for share in row]
    other = [share for row in second.matrix for share in row]
    lengths = math.sqrt(sum(x * x for x in one)), math.sqrt(sum(x * x for x in other))
    if min(lengths) <= _TINY:
        return 0.0
    return sum(x * y for x, y in zip(one, other, strict=True)) / (lengths[0] * lengths[1])


METHOD: Final = "behavioral-turn-classifier"
LOW: Final = 0.75
"""A confidence strictly below this is low."""


def summarise(runs: Sequence[LabelledRun]) -> dict[str, Any]:
    """The report's `summary`; undefined values are 0."""
    traced = [run for run in runs if run.has_trace]
    matrix, ideal = average_matrix(traced), find_ideal_sequence(traced)
    rows = [_describe(run, score_run(run.labels, matrix, ideal)) for run in traced]
    turns = [bond for run in traced for bond in run.labels]
    dominant = [row["dominant_bond"] for row in rows]
    return {
        "n_trials": len(runs),
        "trials_with_behavioral_trace": len(traced),
        "classified_trials": len(traced),
        "reference_trial_count": len(list_references(traced)),
        "mean_classified_turns": _mean([float(len(run.labels)) for run in traced]),
        "bond_distribution": {
            label: count / max(len(turns), 1) for label, count in count_labels(turns).items()
        },
        "dominant_bond_counts": {
            label: dominant.count(label) for label in LABELS if label in dominant
        },
        "mean_cosine_similarity": _mean_of(rows, "cosine_similarity"),
        "mean_normalized_edit_distance": _mean_of(rows, "normalized_edit_distance"),
        "confidence": summarise_confidence([run.confidences for run in traced], len(runs)),
        "trials": rows,
    }


def summarise_confidence(traces: Sequence[Sequence[float]], total: int) -> dict[str, Any]:
    """Confidence of the labels, by turn and by trial; `traces` has those that were found."""
    turns = [sure for trace in traces for sure in trace]
    means = [_mean(trace) for trace in traces if trace]
    return {
        "confidence_method": METHOD,
        "trials_with_behavioral_trace": len(traces),
        "classified_trials": len(means),
        "evaluation_completeness": len(traces) / total if total else 0.0,
        "mean_turn_confidence": _mean(turns),
        "mean_trial_confidence": _mean(means),
        "low_confidence_turn_fraction": _mean([float(sure < LOW) for sure in turns]),
        "low_confidence_trial_fraction": _mean([float(sure < LOW) for sure in means]),
        "low_confidence_threshold": LOW,
        "metadata": {"confidence_method": METHOD},
    }


def _describe(run: LabelledRun, score: dict[str, float | None]) -> dict[str, Any]:
    counts = count_labels(run.labels)
    return {
        "trial_id": run.trial,
        "task_id": run.task or "",
        "reward": run.reward,
        "classified_turns": len(run.labels),
        "mean_turn_confidence": _mean(run.confidences) if run.labels else None,
        "bond_counts": counts,
        "dominant_bond": find_dominant(counts),
        **score,
    }


def _mean_of(rows: Sequence[dict[str, Any]], key: str) -> float:
    return _mean([row[key] for row in rows if row[key] is not None])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
