"""The labels of one or more trials as numbers: shares, transitions, loops, distances.

A run's transitions are counted with a beginning and an end, so that a run of one turn has some.
References are the other trials at the same task that were scored 1 or more; where the task has
none, those of its family (the task's id up to its last / or -). A run is never its own reference.

Two distances, both from 0 (the same) to 1 (nothing in common), and neither grows with length:

    transitions   Jensen-Shannon distance between the shares of the transitions of the run and of
                  its references together. Shares, because twice as long a run of the same kind has
                  the same; Jensen-Shannon, because it is defined where one side has a transition
                  that the other lacks, and has a highest value.
    order         edits that turn the run's sequence into a reference's, each taken with repeats
                  left out (E E E V V is E V), over the longer one; the mean over the references
                  (of more than 20, the first 20 by name).

A share of nothing, a mean over nothing and a distance to nothing are None, never 0; every mean has
the number of trials it covers. Two sets of labels of the same turns are compared by Cohen's kappa.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from typing import Final, Literal

import msgspec

from proctor.traces.labels import LABELS, count_labels, find_dominant

GOOD_REWARD: Final = 1.0
"""The lowest reward of a reference."""
MOST_REFERENCES: Final = 20
"""References whose order is compared, the first by name, so that the work is bounded."""
MOST_STRETCHES: Final = 200
"""Stretches of a run whose order is compared."""
_BEGIN, _END = "begin", "end"

type Counts = tuple[tuple[int, ...], ...]
"""Transitions, 4 by 4: from the row's label to the column's."""
type Basis = Literal["task", "family"]
type Row = tuple[float, ...] | None
"""Shares that sum to 1; None if nothing follows the label."""


class LabelledRun(msgspec.Struct, frozen=True, kw_only=True):
    """A trial with the labels of its turns, in order."""

    trial: str
    """Its unique name."""
    task: str | None
    """The task's id; None if unknown."""
    reward: float | None
    """None: not scored."""
    labels: tuple[str, ...]
    confidences: tuple[float, ...] = ()
    """Confidence of each label."""
    has_trace: bool = True
    """Whether there was a trace to label."""


class Loop(msgspec.Struct, frozen=True):
    """How long a label continues without interruption."""

    longest: int
    """Turns of the longest stretch."""
    stretches: int
    """How many stretches there are."""
    turns: int
    """Turns of all stretches together."""


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """The distance of a run from its references."""

    basis: Basis
    """Whether they are runs at the same task or in its family."""
    references: int
    """Number of references."""
    transitions: float
    order: float


def count_transitions(labels: Sequence[str]) -> Counts:
    """Count how often each label follows each."""
    at = {label: place for place, label in enumerate(LABELS)}
    counts = [[0] * len(LABELS) for _ in LABELS]
    for one, following in pairwise(labels):
        counts[at[one]][at[following]] += 1
    return tuple(tuple(row) for row in counts)


def add_counts(counts: Iterable[Counts]) -> Counts:
    """Add up the transitions of many runs; long runs weigh more."""
    total = [[0] * len(LABELS) for _ in LABELS]
    for one in counts:
        for row, added in zip(total, one, strict=True):
            for place, count in enumerate(added):
                row[place] += count
    return tuple(tuple(row) for row in total)


def make_matrix(counts: Counts) -> tuple[Row, ...]:
    """The share of each following label, per label."""
    return tuple(tuple(count / sum(row) for count in row) if any(row) else None for row in counts)


def find_loops(labels: Sequence[str]) -> dict[str, Loop | None]:
    """How long each label continues; None for a label that does not occur."""
    stretches: dict[str, list[int]] = {label: [] for label in LABELS}
    for label, same in groupby(labels):
        stretches[label].append(len(list(same)))
    return {
        label: Loop(max(found), len(found), sum(found)) if found else None
        for label, found in stretches.items()
    }


def find_family(task: str) -> str | None:
    """The prefix that related tasks share; None if the id has no such part."""
    cut = max(task.rfind("/"), task.rfind("-"))
    return task[:cut] if cut > 0 else None


def measure_distances(runs: Sequence[LabelledRun]) -> dict[str, Distance | None]:
    """The distance of each run from its references, by trial; None without references."""
    good = sorted((run for run in runs if _is_good(run)), key=lambda run: run.trial)
    by_task, by_family = _group(good, lambda task: task), _group(good, find_family)
    return {run.trial: _find_distance(run, by_task, by_family) for run in runs}


def _is_good(run: LabelledRun) -> bool:
    return bool(run.labels) and run.reward is not None and run.reward >= GOOD_REWARD


type _Transitions = Counter[tuple[str, str]]


@dataclass(slots=True)
class _Group:
    """Related runs with a full reward, and their transitions."""

    runs: dict[str, LabelledRun] = field(default_factory=dict)
    transitions: _Transitions = field(default_factory=Counter)

    def add(self, run: LabelledRun) -> None:
        self.runs[run.trial] = run
        self.transitions += list_transitions(run.labels)

    def measure(self, run: LabelledRun, basis: Basis) -> Distance | None:
        """The distance of a run from the others."""
        is_own = run.trial in self.runs
        others = (each for each in self.runs.values() if each.trial != run.trial)
        orders = [
            measure_order(run.labels, each.labels) for each in islice(others, MOST_REFERENCES)
        ]
        if not orders:
            return None
        own = list_transitions(run.labels)
        theirs = self.transitions - own if is_own else self.transitions
        return Distance(
            basis=basis,
            references=len(self.runs) - is_own,
            transitions=measure_transitions(own, theirs),
            order=math.fsum(orders) / len(orders),
        )


def _group(
    runs: Iterable[LabelledRun], name: Callable[[str], str | None]
) -> defaultdict[str, _Group]:
    groups: defaultdict[str, _Group] = defaultdict(_Group)
    for run in runs:
        key = None if run.task is None else name(run.task)
        if key is not None:
            groups[key].add(run)
    return groups


def _find_distance(
    run: LabelledRun, by_task: dict[str, _Group], by_family: dict[str, _Group]
) -> Distance | None:
    if not run.labels or run.task is None:
        return None
    # Runs at the same task say most; the family is the fallback.
    alike = by_task.get(run.task, _Group()).measure(run, "task")
    family = find_family(run.task) or ""
    return alike or by_family.get(family, _Group()).measure(run, "family")


def list_transitions(labels: Sequence[str]) -> _Transitions:
    """What follows what in a run, with its begin and end, counted."""
    return Counter(pairwise([_BEGIN, *labels, _END]))


def measure_transitions(first: _Transitions, second: _Transitions) -> float:
    """Jensen-Shannon distance between the transitions of two runs, 0 to 1."""
    n_first, n_second = first.total(), second.total()
    total = math.fsum(
        _divergence(first[step] / n_first, second[step] / n_second)
        for step in first.keys() | second.keys()
    )
    # Rounding can leave a sum slightly outside 0 to 1.
    return math.sqrt(min(max(total / 2, 0.0), 1.0))


def _divergence(one: float, other: float) -> float:
    middle = (one + other) / 2
    return math.fsum(part * math.log2(part / middle) for part in (one, other) if part)


def measure_order(first: Sequence[str], second: Sequence[str]) -> float:
    """Edits between two sequences without their repeats, over the longer one, 0 to 1."""
    one, other = _leave_repeats_out(first), _leave_repeats_out(second)
    return count_edits(one, other) / max(len(one), len(other), 1)


def _leave_repeats_out(labels: Sequence[str]) -> list[str]:
    return [label for label, _ in groupby(labels)][:MOST_STRETCHES]


def count_edits(first: Sequence[str], second: Sequence[str]) -> int:
    """Edit distance: labels to insert, delete or replace."""
    before = list(range(len(second) + 1))
    for row, one in enumerate(first, 1):
        now = [row]
        for column, other in enumerate(second, 1):
            replaced = before[column - 1] + (one != other)
            now.append(min(replaced, before[column] + 1, now[-1] + 1))
        before = now
    return before[-1]


class TrialBehaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of one trial."""

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
    """Null if there is no good run at the same task or in its family."""


class Mean(msgspec.Struct, frozen=True):
    """A mean, with the number of trials."""

    mean: float
    trials: int


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """The behaviour of many trials together."""

    trials: int
    labelled: int
    """Trials with at least one label."""
    turns: int
    counts: dict[str, int]
    shares: dict[str, float] | None
    """Share of all turns: a long trial weighs more."""
    dominant: dict[str, int]
    """How many trials each label dominates."""
    transitions: Counts
    matrix: tuple[Row, ...]
    loops: dict[str, Loop | None]
    distance_transitions: Mean | None
    distance_order: Mean | None


def describe_trials(runs: Sequence[LabelledRun]) -> list[TrialBehaviour]:
    """Describe each trial, compared with the others."""
    distances = measure_distances(runs)
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
    """Describe all trials together."""
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
    """Counts as shares of their sum; None if the sum is 0."""
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
