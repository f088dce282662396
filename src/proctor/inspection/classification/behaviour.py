"""The labels of one trial, and of many, as facts: shares, what follows what, loops, distances.

A share of nothing, a mean over nothing and a distance to nothing are null, never 0; every mean says
over how many trials it is.
"""

import math
from collections.abc import Iterable, Sequence

import msgspec

from proctor.inspection.classification.labels import LABELS, count_labels, find_dominant
from proctor.inspection.classification.structure import (
    Counts,
    Distance,
    LabelledRun,
    Loop,
    Row,
    add_counts,
    count_transitions,
    find_distances,
    find_loops,
    make_matrix,
)


class TrialBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How one trial behaved."""

    trial: str
    task: str | None
    reward: float | None
    """Null: not scored."""
    turns: int
    """Turns that have a label."""
    counts: dict[str, int]
    shares: dict[str, float] | None
    dominant: str | None
    """The most frequent label; of equals, the first in order."""
    transitions: Counts
    matrix: tuple[Row, ...]
    loops: dict[str, Loop | None]
    distance: Distance | None
    """Null where there is no good run at the same task or in its family to compare with."""


class Mean(msgspec.Struct, frozen=True):
    """A mean, and over how many trials."""

    mean: float
    trials: int


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """How many trials behaved, taken together."""

    trials: int
    labelled: int
    """Trials that have a label at all."""
    turns: int
    counts: dict[str, int]
    shares: dict[str, float] | None
    """Of all turns together: a long trial weighs more."""
    dominant: dict[str, int]
    """How many trials each label dominates."""
    transitions: Counts
    matrix: tuple[Row, ...]
    loops: dict[str, Loop | None]
    distance_transitions: Mean | None
    distance_order: Mean | None


def describe_trials(runs: Sequence[LabelledRun]) -> list[TrialBehaviour]:
    """Each trial, held against the others."""
    distances = find_distances(runs)
    return [_describe(run, distances[run.trial]) for run in runs]


def _describe(run: LabelledRun, distance: Distance | None) -> TrialBehaviour:
    counts = count_labels(run.labels)
    transitions = count_transitions(run.labels)
    return TrialBehaviour(
        trial=run.trial,
        task=run.task,
        reward=run.reward,
        turns=len(run.labels),
        counts=counts,
        shares=find_shares(counts),
        dominant=find_dominant(counts),
        transitions=transitions,
        matrix=make_matrix(transitions),
        loops=find_loops(run.labels),
        distance=distance,
    )


def describe_all(trials: Sequence[TrialBehaviour]) -> Behaviour:
    """All trials together."""
    counts = {label: sum(trial.counts[label] for trial in trials) for label in LABELS}
    transitions = add_counts(trial.transitions for trial in trials)
    dominant = [trial.dominant for trial in trials]
    measured = [trial.distance for trial in trials if trial.distance is not None]
    return Behaviour(
        trials=len(trials),
        labelled=sum(trial.turns > 0 for trial in trials),
        turns=sum(counts.values()),
        counts=counts,
        shares=find_shares(counts),
        dominant={label: dominant.count(label) for label in LABELS},
        transitions=transitions,
        matrix=make_matrix(transitions),
        loops={label: _join_loops(trial.loops[label] for trial in trials) for label in LABELS},
        distance_transitions=_mean([each.transitions for each in measured]),
        distance_order=_mean([each.order for each in measured]),
    )


def find_shares(counts: dict[str, int]) -> dict[str, float] | None:
    """Counts as shares of their sum; None where there is nothing to share."""
    total = sum(counts.values())
    return {label: count / total for label, count in counts.items()} if total else None


def _join_loops(loops: Iterable[Loop | None]) -> Loop | None:
    found = [loop for loop in loops if loop is not None]
    if not found:
        return None
    turns, stretches = sum(loop.turns for loop in found), sum(loop.stretches for loop in found)
    return Loop(max(loop.longest for loop in found), stretches, turns)


def _mean(values: Sequence[float]) -> Mean | None:
    return Mean(math.fsum(values) / len(values), len(values)) if values else None
