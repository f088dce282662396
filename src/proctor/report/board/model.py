"""A board as a value: sections of like conditions, in them rows, in those the trials."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proctor.ledger.row import TrialRow
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.board.numbers import RowNumbers
from proctor.report.board.trials import BoardTrials


@dataclass(frozen=True, slots=True)
class PolicyMark:
    """How a row stands before a policy."""

    policy: str
    reasons: Mapping[str, int]
    """Codes of what is amiss, each with the trials, or the rows, that it is said of."""
    trials: Mapping[str, tuple[str, ...]]
    """Codes by the record of each trial that has some."""

    @property
    def has_passed(self) -> bool:
        """Whether nothing is amiss."""
        return not self.reasons


class PolicyCheck(Protocol):
    """Where rows are held against a policy. What does it is slow to load, and seldom asked for."""

    name: str
    """The policy's."""

    def mark(self, attempts: Sequence[TrialRow], size: int) -> PolicyMark:
        """How the trials of a row stand at a size of the log."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardRow:
    """One agent with one model and one configuration, under the conditions of its section."""

    number: str
    """SECTION.ROW, from 1.1; it names the row at this position only."""
    agent: str
    model: str
    configuration: str
    """Digest of the agent's own settings."""
    revision: str | None
    source: str | None
    """Where its trials were brought in from; null: proctor ran them."""
    is_diagnostic: bool
    """Its records are partial."""
    experiments: tuple[str, ...]
    attempts: list[TrialRow]
    """In the order they were sealed, whatever became of them."""
    numbers: RowNumbers
    mark: PolicyMark | None = None
    """Null where no policy was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSection:
    """Rows that may stand side by side."""

    number: int
    conditions: RunConditions
    tasks: Mapping[str | None, TaskConditions]
    apart: tuple[str, ...]
    """Why it is not one with each of the sections before it, in sentences."""
    rows: tuple[BoardRow, ...]
    """By score, partial records last."""


@dataclass(frozen=True, slots=True)
class PlannedCount:
    """An experiment of the board beside the first plan that was sealed for it."""

    experiment: str
    seq: int
    """The plan's place in the log."""
    planned: int
    counted: int
    """Its trials that are in the numbers of the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A dataset at a position of a ledger."""

    dataset: str
    origin: str
    """The ledger's own name."""
    sections: tuple[BoardSection, ...]
    trials: BoardTrials
    planned: tuple[PlannedCount, ...] = ()
    """Experiments that were planned; of the others nobody says how many were to be run."""
    policy: str | None = None

    @property
    def size(self) -> int:
        """The position: entries of the log that count."""
        return self.trials.size

    @property
    def rows(self) -> Iterator[BoardRow]:
        """All rows, section by section."""
        for section in self.sections:
            yield from section.rows
