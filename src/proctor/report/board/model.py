"""A board as a value: sections by conditions, rows in sections, trials in rows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proctor.ledger.row import TrialRow
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.board.numbers import RowNumbers
from proctor.report.board.trials import BoardTrials


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
