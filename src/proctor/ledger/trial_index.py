"""The interface of an index over a ledger, for lists and look-ups.

An index is derived from the log and proves nothing. It stores how far it has read and the frontier
of the Merkle tree there, so that it can be compared with the checkpoint without reading the log
again. `Index` (index.py) is the implementation in SQLite.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from proctor.errors import InputError
from proctor.ledger.entry import AnyEntry, KeyEntry, Withheld
from proctor.ledger.log import Place
from proctor.ledger.row import TrialRow
from proctor.ledger.tree import Frontier
from proctor.times import render_utc

STATUSES = ("sealed", "diagnostic", "superseded", "withheld")
EVERYTHING = 1 << 62
"""More entries than any log has."""


type NameColumn = Literal["experiment_id", "trial_id", "task_id", "model"]


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A condition on a name of a trial, or on its last part after a slash; case is ignored."""

    column: NameColumn
    pattern: str
    """`*` matches any text."""
    is_not: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """Selects trials; fields that are None or empty select all."""

    experiment: str | None = None
    trial: str | None = None
    """A trial's id."""
    dataset: str | None = None
    task: str | None = None
    """A prefix of the task's id."""
    harness: str | None = None
    model: str | None = None
    lowest: float | None = None
    """The lowest reward; trials without a score are left out."""
    highest: float | None = None
    """The highest reward."""
    status: str | None = None
    since: datetime | str | None = None
    """The earliest time the trial ran; a string is ISO 8601, in UTC unless it has an offset."""
    limit: int | None = None
    """At most this many, the most recently sealed."""
    first: int | None = None
    """At most this many, the first sealed."""
    seqs: tuple[int, ...] | None = None
    """Positions of their entries."""
    from_seq: int | None = None
    """The lowest entry position."""
    experiments: tuple[str, ...] | None = None
    trial_prefix: str | None = None
    """A prefix of the trial's id."""
    record_prefix: str | None = None
    """A prefix of the record's digest."""
    names: tuple[NamePattern, ...] = ()

    def __post_init__(self) -> None:
        if self.status is not None and self.status not in STATUSES:
            raise InputError(f"status is {self.status!r}; expected one of {', '.join(STATUSES)}")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"limit is {self.limit}; expected 1 or more")
        for name in ("lowest", "highest"):
            bound = getattr(self, name)
            if bound is not None and math.isnan(bound):
                raise InputError(f"{name} is nan, which no reward can be compared with")


class Indexed(msgspec.Struct, frozen=True):
    """A line of the log to be added to an index."""

    place: Place
    length: int
    """Bytes, without the newline."""
    leaf: bytes
    entry: AnyEntry | Withheld
    row: TrialRow | None = None
    """The row of a trial, if it was read already."""


class IndexedEntry(msgspec.Struct, frozen=True):
    """An entry of any kind as the index stores it."""

    seq: int
    kind: str
    """Empty if the entry was withheld."""
    at: str
    place: Place
    length: int
    leaf: bytes


class Position(msgspec.Struct, frozen=True):
    """The position up to which an index has read its log."""

    place: Place
    frontier: Frontier
    key: str
    """The public key that signs there; empty at the start."""


class TrialIndex(Protocol):
    """The entries of a log, and the rows of its trials. Close it after use."""

    @property
    def path(self) -> Path | None:
        """Its file; None if it has none."""

    def close(self) -> None:
        """Close the index."""

    def position(self) -> Position:
        """The position up to which the log was read."""

    def size(self) -> int:
        """The number of entries read."""

    def reading(self) -> AbstractContextManager[None]:
        """Read one consistent state, even if another process writes."""

    def add(self, lines: Iterable[Indexed], position: Position, *, after: int) -> bool:
        """Add lines and store the new position, all or nothing.

        Returns False, without adding, if another process has moved the index from `after` since.

        Raises:
            DamageError: an entry has no record, or is the same trial as another entry.
        """

    def erase(self) -> None:
        """Delete all rows, leaving no withheld bytes behind."""

    def entry(self, seq: int) -> IndexedEntry | None:
        """The indexed entry at a position, or None."""

    def entries(self, first: int, end: int) -> list[IndexedEntry]:
        """The entries from `first` up to before `end`, in order."""

    def latest_entries(
        self, count: int, *, before: int | None = None, kind: str | None = None
    ) -> list[IndexedEntry]:
        """The last entries, newest first."""

    def places(self, kind: str, *, size: int = EVERYTHING) -> list[int]:
        """Positions of the entries of a kind among the first `size` entries, in order."""

    def count_kinds(self, *, size: int = EVERYTHING) -> dict[str, int]:
        """The number of entries of each kind."""

    def hashes(self, level: int, first: int, end: int) -> list[bytes]:
        """Consecutive hashes of the Merkle tree: at level 0 the leaf hashes of entries.

        At level n, each is the root over 16 complete hashes of the level below. Those that do not
        exist yet are left out.
        """

    def withheld_lines(self) -> list[IndexedEntry]:
        """The entries that withholdings name, whether or not their lines are withheld now."""

    def find_trial(self, experiment_id: str, trial_id: str) -> tuple[int, str, str | None] | None:
        """The position, record digest and evidence digest of a sealed trial, or None."""

    def trials(self, wanted: TrialFilter, *, size: int = EVERYTHING) -> Iterator[TrialRow]:
        """The trials among the first `size` entries that a filter selects, in the order of the log.

        Each has its present status, and its latest review among the first entries.

        Raises:
            InputError: a time in the filter is invalid.
        """

    def supersessions(self, size: int = EVERYTHING) -> dict[str, str | None]:
        """Why each supersession among the first entries does not count; None if it does.

        The keys are superseded records; see counting.py.
        """

    def remarks(
        self,
        *,
        record: str | None = None,
        experiment: str | None = None,
        kind: str | None = None,
        size: int = EVERYTHING,
    ) -> list[int]:
        """Positions of the entries about a record, about an experiment's trials, or of a kind."""

    def naming(self, sha256: str) -> Iterator[int]:
        """Positions of the trials that name this evidence, in order.

        There may be others among them, and trials that were withheld.
        """

    def datasets(self, *, size: int = EVERYTHING) -> list[tuple[str, int, int]]:
        """Every dataset by name, with its number of trials and of experiments."""

    def experiments(self, words: str = "") -> list[tuple[str, int]]:
        """Experiments with the position of their last trial, most recent first.

        With `words`, only those whose name, agent, model or dataset contains them.
        """

    def experiment_version(self, name: str) -> str | None:
        """A string that changes with each trial of an experiment and each entry of another kind.

        None if the experiment has no trial.
        """


def key_after(key: str, entry: AnyEntry | Withheld) -> str:
    """The key that signs after this entry."""
    return entry.key if isinstance(entry, KeyEntry) else key


def check_text(text: str, what: str) -> None:
    """Refuse a text that no ledger can contain.

    Raises:
        InputError: it has control characters or undecodable bytes.
    """
    if not text.isprintable():
        raise InputError(f"{what} is {text[:80]!r}; expected text without control characters")


def format_since(given: datetime | str) -> str:
    """A time in the format of rows.

    Raises:
        InputError: it is not a time.
    """
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"since is {str(given)[:60]!r}; expected a time such as 2026-11-15 or "
            "2026-11-15T10:00:00Z"
        ) from error
    return render_utc(moment, "microseconds")
