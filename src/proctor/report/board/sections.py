"""Runs of like conditions side by side, unlike ones apart.

What is placed is a sitting: the trials of one experiment by one agent, model and configuration. It
goes, in the order of sealing, into the first section that has its run conditions and in which no
task that both have was another one: other revision, other image, other limits. So a run is never
torn apart because one of its tasks changed, and the split depends on the log alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

import msgspec

from proctor.ledger.row import TrialRow
from proctor.record.comparable import RunConditions, TaskConditions

type Sitter = tuple[str | None, str | None, str | None, str | None, bool]
"""Agent, model, configuration, source, and whether the records are partial: what makes a row."""

_ENCODER = msgspec.json.Encoder(order="sorted")


@dataclass(slots=True)
class Sitting:
    """Trials of one experiment that belong into one row, under conditions that agree."""

    sitter: Sitter
    run: int
    attempts: list[TrialRow] = field(default_factory=list)
    tasks: dict[str | None, int] = field(default_factory=dict)
    """The number of a task's conditions, by the task."""


@dataclass(slots=True)
class Placed:
    """A section as it is being filled."""

    run: int
    conditions: RunConditions
    tasks: dict[str | None, int] = field(default_factory=dict)
    sittings: list[Sitting] = field(default_factory=list)


class Numbered:
    """Equal conditions get one number; those that are one object are compared once."""

    def __init__(self) -> None:
        self.by_identity: dict[int, int] = {}
        """Numbers of conditions that were seen, by the identity of the object."""
        self._by_text: dict[bytes, int] = {}
        self.values: list[RunConditions | TaskConditions | None] = []

    def number(self, value: RunConditions | TaskConditions | None) -> int:
        """Of conditions that were not seen before."""
        # The identity is a name only as long as the value lives: it is kept.
        self.values.append(value)
        found = self._by_text.setdefault(_ENCODER.encode(value), len(self.values) - 1)
        self.by_identity[id(value)] = found
        return found

    def run(self, number: int) -> RunConditions:
        """Run conditions by their number."""
        found = self.values[number]
        return found if isinstance(found, RunConditions) else RunConditions(backend="unknown")

    def task(self, number: int) -> TaskConditions:
        """A task's conditions by their number."""
        found = self.values[number]
        if isinstance(found, TaskConditions):
            return found
        return TaskConditions(revision="unknown", image="unknown")


def place_attempts(attempts: Sequence[TrialRow], numbered: Numbered) -> list[Placed]:
    """The sections of attempts that are given in the order of sealing."""
    sections: list[Placed] = []
    for sitting in _find_sittings(attempts, numbered):
        section = next((each for each in sections if _is_like(each, sitting)), None)
        if section is None:
            section = Placed(sitting.run, numbered.run(sitting.run))
            sections.append(section)
        section.sittings.append(sitting)
        section.tasks.update(sitting.tasks)
    return sections


def _is_like(section: Placed, sitting: Sitting) -> bool:
    if section.run != sitting.run:
        return False
    known = section.tasks
    return all(known.get(task, number) == number for task, number in sitting.tasks.items())


def _find_sittings(attempts: Iterable[TrialRow], numbered: Numbered) -> list[Sitting]:
    """In the order in which they began; an attempt that fits no other begins one of its own."""
    found: dict[tuple[object, ...], Sitting] = {}
    number, known = numbered.number, numbered.by_identity
    for attempt in attempts:
        # A hundred thousand attempts share a few conditions: a look-up each, and seldom a call.
        if (run := known.get(id(attempt.run_conditions))) is None:
            run = number(attempt.run_conditions)
        if (task := known.get(id(attempt.task_conditions))) is None:
            task = number(attempt.task_conditions)
        sitter = (
            attempt.agent,
            attempt.model,
            attempt.configuration,
            attempt.source,
            attempt.completeness != "complete",
        )
        key: tuple[object, ...] = (attempt.experiment_id, run, *sitter)
        sitting = found.get(key)
        if sitting is None:
            sitting = found[key] = Sitting(sitter, run)
        elif sitting.tasks.get(attempt.task_id, task) != task:
            sitting = _find_other(found, key, attempt.task_id, task)
        sitting.tasks[attempt.task_id] = task
        sitting.attempts.append(attempt)
    return list(found.values())


def _find_other(
    found: dict[tuple[object, ...], Sitting], key: tuple[object, ...], task: str | None, number: int
) -> Sitting:
    """A sitting of the same people in which the task is the same; perhaps a new one."""
    first = found[key]
    for more in count(1):
        other = found.setdefault((*key, more), Sitting(first.sitter, first.run))
        if other.tasks.get(task, number) == number:
            return other
    raise AssertionError("unreachable: the numbers do not end")
