"""A board as a value: sections by conditions, rows in sections, trials in rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proctor.ledger.row import TrialRow
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.board.numbers import RowNumbers
from proctor.report.board.trials import BoardTrials
from proctor.sentence import count_of


@dataclass(frozen=True, slots=True)
class PolicyMark:
    """The result of a policy for a row."""

    policy: str
    reasons: Mapping[str, int]
    """Codes of failures, each with the number of trials or experiments that it applies to."""
    trials: Mapping[str, tuple[str, ...]]
    """Codes by record, for each trial that has any."""

    @property
    def has_passed(self) -> bool:
        """Whether there is no failure."""
        return not self.reasons


class PolicyCheck(Protocol):
    """Checks rows against a policy. A protocol, because the implementation is slow to import."""

    name: str
    """The name of the policy."""

    def mark(self, rows: Sequence[TrialRow], size: int) -> PolicyMark:
        """Check the trials of a row at a size of the log."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """One agent with one model and one configuration, under the conditions of its section."""

    number: str
    """SECTION.ROW, from 1.1; valid at this position only."""
    agent: str
    model: str
    configuration: str
    """Digest of the agent's settings."""
    revision: str | None
    source: str | None
    """The source of imported trials; null: proctor ran them."""
    is_diagnostic: bool
    """Whether its records are partial."""
    experiments: tuple[str, ...]
    load_trials: Callable[[], list[TrialRow]]
    """Its trials with any status, in the order they were sealed; the ledger must be open."""
    numbers: RowNumbers
    mark: PolicyMark | None = None
    """Null if no policy was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSection:
    """Rows that can be compared with each other."""

    number: int
    conditions: RunConditions
    tasks: Mapping[str | None, TaskConditions]
    apart: tuple[str, ...]
    """Why it is separate from each section before it, in sentences."""
    rows: tuple[BoardRow, ...]
    """By score, partial records last."""


@dataclass(frozen=True, slots=True)
class PlannedCount:
    """An experiment of the board, compared with the first plan sealed for it."""

    experiment: str
    seq: int
    """The plan's position in the log."""
    planned: int
    counted: int
    """Its trials that count on the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The results of a dataset at a position of a ledger."""

    dataset: str
    origin: str
    """The ledger's name."""
    sections: tuple[BoardSection, ...]
    trials: BoardTrials
    planned: tuple[PlannedCount, ...] = ()
    """Experiments that have a plan."""
    policy: str | None = None

    @property
    def size(self) -> int:
        """The position: the number of log entries that count."""
        return self.trials.size

    @property
    def rows(self) -> Iterator[BoardRow]:
        """All rows, section by section."""
        for section in self.sections:
            yield from section.rows


# Conditions of runs and tasks in words, and how two of them differ


# Characters of a digest that are shown to people.
_SHOWN = 16


def describe_run(run: RunConditions) -> str:
    """The conditions of a run that its tasks do not set."""
    rules = run.profile or "scored elsewhere"
    # For an import path, show only the class: `apart` has the path where it matters.
    backend = run.backend.rpartition(":")[2]
    if run.has_default_limits:
        return f"{backend}, {rules}, default limits"
    changed = ", ".join(f"{name} {_spell(value)}" for name, value in sorted(run.changed.items()))
    return f"{backend}, {rules}, {changed}"


def describe_tasks(tasks: Mapping[str | None, TaskConditions]) -> str:
    """The conditions of the tasks in a section."""
    said = count_of(len(tasks), "task")
    pinned = sum(each.has_pinned_image for each in tasks.values())
    images = "all images pinned" if pinned == len(tasks) else f"{pinned} images pinned"
    limited = sum(bool(each.limits) for each in tasks.values())
    if limited == len(tasks):
        return f"{said}, {images}"
    some = f"of {len(tasks) - limited} " if limited else ""
    return f"{said}, {images}, limits {some}not on record"


def run_differences(one: RunConditions, other: RunConditions) -> Iterator[str]:
    """The differences between the conditions of two runs."""
    if one.backend != other.backend:
        yield f"run by {one.backend}, not {other.backend}"
    if one.profile != other.profile:
        yield f"scored by {one.profile or 'others'}, not {other.profile or 'others'}"
    for name in sorted({*one.changed, *other.changed}):
        mine, theirs = one.changed.get(name), other.changed.get(name)
        if mine != theirs:
            yield f"{name} {_spell(mine)}, not {_spell(theirs)}"


def task_difference(task: str, one: TaskConditions, other: TaskConditions) -> str:
    """The first difference between the conditions of a task in two sections."""
    if one.revision != other.revision:
        return f"{task} is at revision {_cut(one.revision)}, not {_cut(other.revision)}"
    if one.image != other.image:
        return f"{task} ran in {_cut_image(one.image)}, not {_cut_image(other.image)}"
    for name in sorted({*one.limits, *other.limits}):
        mine, theirs = one.limits.get(name), other.limits.get(name)
        if mine != theirs or (name in one.limits) != (name in other.limits):
            return f"{task} had {name} {_spell(mine)}, not {_spell(theirs)}"
    marked, then = (each.verifier or "unrecorded files" for each in (one, other))
    return f"{task} was scored by {marked}, not {then}"


def _spell(value: object) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _cut_image(image: str) -> str:
    name, mark, digest = image.partition("@sha256:")
    return f"{name}{mark}{_cut(digest)}" if mark else image
