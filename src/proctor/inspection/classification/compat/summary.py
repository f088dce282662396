"""What aec-bench's report says of an experiment's behaviour."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from proctor.inspection.classification.compat.structure import (
    CompatMatrix,
    CompatRun,
    CompatScore,
    average_matrix,
    find_ideal_sequence,
    find_references,
    score_run,
)
from proctor.inspection.classification.labels import LABELS, count_labels, find_dominant

METHOD: Final = "behavioral-turn-classifier"
LOW: Final = 0.75
"""A confidence strictly below that is low."""


class CompatTrial(msgspec.Struct, frozen=True, kw_only=True):
    """One trial with its labels; None where its trace could not be found."""

    trial_id: str
    task_id: str
    reward: float | None
    labels: tuple[tuple[str, float], ...] | None
    """Label and confidence of each turn."""


def summarise(trials: Sequence[CompatTrial]) -> dict[str, Any]:
    """The report's `summary`; what is not defined is 0 in it."""
    traced = [trial for trial in trials if trial.labels is not None]
    runs = [_run_of(trial) for trial in traced]
    references = find_references(runs)
    matrix, ideal = average_matrix(runs), find_ideal_sequence(runs)
    rows = [
        _describe(trial, run, _score(run, matrix, ideal))
        for trial, run in zip(traced, runs, strict=True)
    ]
    turns = [bond for run in runs for bond in run.bonds]
    dominant = [row["dominant_bond"] for row in rows]
    return {
        "n_trials": len(trials),
        "trials_with_behavioral_trace": len(traced),
        "classified_trials": len(traced),
        "reference_trial_count": len(references),
        "mean_classified_turns": _mean([float(len(run.bonds)) for run in runs]),
        "bond_distribution": {
            label: count / max(len(turns), 1) for label, count in count_labels(turns).items()
        },
        "dominant_bond_counts": {
            label: dominant.count(label) for label in LABELS if label in dominant
        },
        "mean_cosine_similarity": _mean_of(rows, "cosine_similarity"),
        "mean_normalized_edit_distance": _mean_of(rows, "normalized_edit_distance"),
        "confidence": summarise_confidence(
            [[sure for _, sure in trial.labels or ()] for trial in traced], len(trials)
        ),
        "trials": rows,
    }


def summarise_confidence(traces: Sequence[Sequence[float]], total: int) -> dict[str, Any]:
    """How sure the labels are, by turn and by trial; `traces` holds those that were found."""
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


def _run_of(trial: CompatTrial) -> CompatRun:
    bonds = tuple(label for label, _ in trial.labels or ())
    return CompatRun(trial.trial_id, trial.reward, bonds)


def _score(run: CompatRun, matrix: CompatMatrix | None, ideal: Sequence[str]) -> CompatScore | None:
    return None if matrix is None or not run.bonds else score_run(run.bonds, matrix, ideal)


def _describe(trial: CompatTrial, run: CompatRun, score: CompatScore | None) -> dict[str, Any]:
    counts = count_labels(run.bonds)
    return {
        "trial_id": trial.trial_id,
        "task_id": trial.task_id,
        "reward": trial.reward,
        "classified_turns": len(run.bonds),
        "mean_turn_confidence": _mean([sure for _, sure in trial.labels or ()])
        if run.bonds
        else None,
        "bond_counts": counts,
        "dominant_bond": find_dominant(counts),
        "cosine_similarity": score.cosine_similarity if score else None,
        "edit_distance": score.edit_distance if score else None,
        "normalized_edit_distance": score.normalized_edit_distance if score else None,
    }


def _mean_of(rows: Sequence[dict[str, Any]], key: str) -> float:
    return _mean([row[key] for row in rows if row[key] is not None])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
