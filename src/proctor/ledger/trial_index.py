"""What lists and look-ups need of an index, whatever it is kept in.

An index is derived from the log and proves nothing. It remembers how far it has read, and the
frontier of the tree there, so that it can be held against the checkpoint without reading the log
again. `Index` (index.py) keeps one in SQLite.
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

STATUSES = ("sealed", "diagnostic", "superseded", "withheld")
EVERYTHING = 1 << 62
"""More entries than a log can have."""


type NameColumn = Literal["experiment_id", "trial_id", "task_id", "model"]


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A condition on a name of a trial, or on its part after the last slash; case is ignored."""

    column: NameColumn
    pattern: str
    """* stands for any text."""
    is_not: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    """Which trials are wanted; what is None or empty is not asked for."""

    experiment: str | None = None
    trial: str | None = None
    """A trial's id."""
    dataset: str | None = None
    task: str | None = None
    """How the task's id begins."""
    harness: str | None = None
    model: str | None = None
    lowest: float | None = None
    """The lowest reward; what is not scored has none, and is left out."""
    highest: float | None = None
    """The highest reward."""
    status: str | None = None
    since: datetime | str | None = None
    """When the trial ran, or later; as text in ISO 8601, in UTC unless it says otherwise."""
    limit: int | None = None
    """At most so many, the ones that were sealed last."""
    first: int | None = None
    """At most so many, the ones that were sealed first."""
    seqs: tuple[int, ...] | None = None
    """Positions of their entries."""
    from_seq: int | None = None
    """The lowest position of their entries."""
    experiments: tuple[str, ...] | None = None
    trial_prefix: str | None = None
    """How the trial's id begins."""
    record_prefix: str | None = None
    """How the digest of the record begins."""
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
    """A line of the log as an index takes it in."""

    place: Place
    length: int
    """Bytes, without the newline."""
    leaf: bytes
    entry: AnyEntry | Withheld
    row: TrialRow | None = None
    """Of a trial, where it was read already."""


class IndexedEntry(msgspec.Struct, frozen=True):
    """What an index says of an entry of any kind."""

    seq: int
    kind: str
    """Empty where the entry was withheld."""
    at: str
    place: Place
    length: int
    leaf: bytes


class Position(msgspec.Struct, frozen=True):
    """How far an index has read."""

    place: Place
    frontier: Frontier
    key: str
    """The public key that signs there; empty at the very beginning."""


class TrialIndex(Protocol):
    """The entries of a log, and the rows of its trials. Whoever opens it closes it."""

    @property
    def path(self) -> Path | None:
        """Its file; None where it has none."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...

    def position(self) -> Position:
        """How far it has read."""
        ...

    def size(self) -> int:
        """How many entries it has read."""
        ...

    def reading(self) -> AbstractContextManager[None]:
        """See one moment of it, whoever writes meanwhile."""
        ...

    def add(self, lines: Iterable[Indexed], position: Position, *, after: int) -> bool:
        """Take lines in, and remember how far that is; all or none.

        False, and nothing is taken in, where another process has moved it from `after` meanwhile.

        Raises:
            DamageError: an entry holds no record, or is a trial that another entry is.
        """
        ...

    def erase(self) -> None:
        """Begin anew, and leave nothing of what it held: bytes were taken out."""
        ...

    def entry(self, seq: int) -> IndexedEntry | None:
        """What it says of an entry."""
        ...

    def entries(self, first: int, end: int) -> list[IndexedEntry]:
        """The entries from one position to before another, in order."""
        ...

    def latest_entries(
        self, count: int, *, before: int | None = None, kind: str | None = None
    ) -> list[IndexedEntry]:
        """The last entries, the newest first."""
        ...

    def places(self, kind: str, *, size: int = EVERYTHING) -> list[int]:
        """Positions of the entries of a kind among the first entries, in order."""
        ...

    def count_kinds(self, *, size: int = EVERYTHING) -> dict[str, int]:
        """How many entries of each kind there are."""
        ...

    def leaves(self, size: int) -> list[bytes]:
        """The leaf hashes of the first entries."""
        ...

    def withheld_lines(self) -> list[IndexedEntry]:
        """The entries that others say were withheld, whether or not they are gone."""
        ...

    def unnamed_withholdings(self, size: int) -> list[tuple[int | None, int | None]]:
        """What was withheld without naming a trial: the line, and the entry that says so.

        The line is None where only evidence was taken out, the entry where none says so.
        """
        ...

    def find_trial(self, experiment_id: str, trial_id: str) -> tuple[int, str, str | None] | None:
        """Where a trial is sealed, with which record and which evidence."""
        ...

    def trials(self, wanted: TrialFilter, *, size: int = EVERYTHING) -> Iterator[TrialRow]:
        """The trials among the first entries that a filter selects, in the order of the log.

        Each has the status that it has now, and the latest review among the first entries.

        Raises:
            InputError: a time of the filter is none.
        """
        ...

    def supersessions(self, size: int = EVERYTHING) -> dict[str, str | None]:
        """Why each supersession among the first entries does not count, None where it does.

        By the superseded record; see supersession.py.
        """
        ...

    def remarks(
        self,
        *,
        record: str | None = None,
        experiment: str | None = None,
        kind: str | None = None,
        size: int = EVERYTHING,
    ) -> list[int]:
        """Positions of the entries about a record, the trials of an experiment, or of a kind."""
        ...

    def datasets(self, *, size: int = EVERYTHING) -> list[tuple[str, int, int]]:
        """Every dataset, by name, with its number of trials and of experiments."""
        ...

    def experiments(self, words: str = "") -> list[tuple[str, int]]:
        """Experiments with the position of their last trial, the most recent first.

        With words, only those that have them in the name, an agent, a model or a dataset.
        """
        ...

    def experiment_version(self, name: str) -> str | None:
        """A text that changes whenever a trial is sealed into an experiment, or anything is said.

        None where there is no trial in it.
        """
        ...


def key_after(key: str, entry: AnyEntry | Withheld) -> str:
    """The key that signs once this entry is in the log."""
    return entry.key if isinstance(entry, KeyEntry) else key


def check_text(text: str, what: str) -> None:
    """Refuse what cannot stand in a ledger, and so cannot be found there.

    Raises:
        InputError: it has control characters, or bytes that are no text.
    """
    if not text.isprintable():
        raise InputError(f"{what} is {text[:80]!r}; expected text without control characters")


def format_since(given: datetime | str) -> str:
    """A time as rows have it.

    Raises:
        InputError: it is none.
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
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
