"""What follows what in a run, and how far a run is from the good runs at the same task.

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

What is not defined is None, never 0. Loops, which the order leaves out, are told by their lengths.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice, pairwise
from typing import Final, Literal

import msgspec

from proctor.inspection.classification.labels import LABELS

GOOD_REWARD: Final = 1.0
"""The lowest reward of a reference."""
MOST_REFERENCES: Final = 20
"""References whose order is compared, the first by name: the work is bounded."""
MOST_STRETCHES: Final = 200
"""How far into a run its order is looked at, repeats not counted."""
_BEGIN, _END = "begin", "end"

type Counts = tuple[tuple[int, ...], ...]
"""Transitions, 4 by 4: from the row's label to the column's."""
type Basis = Literal["task", "family"]
type Row = tuple[float, ...] | None
"""Shares that sum to 1; None where nothing follows."""


class LabelledRun(msgspec.Struct, frozen=True, kw_only=True):
    """A trial as far as structure goes."""

    trial: str
    """Its name, one of its own."""
    task: str | None
    """The task's id; None where it is not known."""
    reward: float | None
    """None: not scored."""
    labels: tuple[str, ...]


class Loop(msgspec.Struct, frozen=True):
    """How long a label is kept up without another in between."""

    longest: int
    """Turns of the longest stretch."""
    stretches: int
    """How many stretches there are."""
    turns: int
    """Turns of all stretches together."""


class Distance(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is from its references."""

    basis: Basis
    """Whose good runs they are."""
    references: int
    """How many."""
    transitions: float
    order: float


def count_transitions(labels: Sequence[str]) -> Counts:
    """How often each label follows each."""
    at = {label: place for place, label in enumerate(LABELS)}
    counts = [[0] * len(LABELS) for _ in LABELS]
    for one, following in pairwise(labels):
        counts[at[one]][at[following]] += 1
    return tuple(tuple(row) for row in counts)


def add_counts(counts: Iterable[Counts]) -> Counts:
    """Transitions of many runs; each counts once, so that long runs weigh more."""
    total = [[0] * len(LABELS) for _ in LABELS]
    for one in counts:
        for row, added in zip(total, one, strict=True):
            for place, count in enumerate(added):
                row[place] += count
    return tuple(tuple(row) for row in total)


def make_matrix(counts: Counts) -> tuple[Row, ...]:
    """Where each label leads, as shares."""
    return tuple(tuple(count / sum(row) for count in row) if any(row) else None for row in counts)


def find_loops(labels: Sequence[str]) -> dict[str, Loop | None]:
    """How long each label is kept up; None for one that is not there."""
    stretches: dict[str, list[int]] = {label: [] for label in LABELS}
    for label, same in groupby(labels):
        stretches[label].append(len(list(same)))
    return {
        label: Loop(max(found), len(found), sum(found)) if found else None
        for label, found in stretches.items()
    }


def find_family(task: str) -> str | None:
    """What a task's id has in common with its like; None where it has no such part."""
    cut = max(task.rfind("/"), task.rfind("-"))
    return task[:cut] if cut > 0 else None


def find_distances(runs: Sequence[LabelledRun]) -> dict[str, Distance | None]:
    """How far each run is from its references, by trial; None where there is none to compare."""
    good = sorted((run for run in runs if _is_good(run)), key=lambda run: run.trial)
    by_task, by_family = _group(good, lambda task: task), _group(good, find_family)
    return {run.trial: _find_distance(run, by_task, by_family) for run in runs}


def _is_good(run: LabelledRun) -> bool:
    return bool(run.labels) and run.reward is not None and run.reward >= GOOD_REWARD


type _Transitions = Counter[tuple[str, str]]


@dataclass(slots=True)
class _Group:
    """Good runs that belong together, and their transitions."""

    runs: dict[str, LabelledRun] = field(default_factory=dict)
    transitions: _Transitions = field(default_factory=Counter)

    def add(self, run: LabelledRun) -> None:
        self.runs[run.trial] = run
        self.transitions += _count(run.labels)

    def measure(self, run: LabelledRun, basis: Basis) -> Distance | None:
        """How far a run is from the others."""
        is_own = run.trial in self.runs
        others = (each for each in self.runs.values() if each.trial != run.trial)
        orders = [
            measure_order(run.labels, each.labels) for each in islice(others, MOST_REFERENCES)
        ]
        if not orders:
            return None
        own = _count(run.labels)
        return Distance(
            basis=basis,
            references=len(self.runs) - is_own,
            transitions=_measure(own, self.transitions - own if is_own else self.transitions),
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
    alike = by_task.get(run.task, _Group()).measure(run, "task")
    family = find_family(run.task) or ""
    return alike or by_family.get(family, _Group()).measure(run, "family")


def measure_transitions(first: Sequence[str], second: Sequence[str]) -> float:
    """Jensen-Shannon distance between the transitions of two runs, 0 to 1."""
    return _measure(_count(first), _count(second))


def _count(labels: Sequence[str]) -> _Transitions:
    return Counter(pairwise([_BEGIN, *labels, _END]))


def _measure(first: _Transitions, second: _Transitions) -> float:
    n_first, n_second = first.total(), second.total()
    total = math.fsum(
        _divergence(first[step] / n_first, second[step] / n_second)
        for step in first.keys() | second.keys()
    )
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
    """Labels to insert, leave out or replace to get from one sequence to the other."""
    before = list(range(len(second) + 1))
    for row, one in enumerate(first, 1):
        now = [row]
        for column, other in enumerate(second, 1):
            replaced = before[column - 1] + (one != other)
            now.append(min(replaced, before[column] + 1, now[-1] + 1))
        before = now
    return before[-1]
