"""The index of a ledger: what lists and look-ups read. It is derived, and proves nothing.

Delete it and it is made again from the log. It remembers how far it has read and the frontier of
the tree there, so that it can be held against the checkpoint without reading the log again.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from proctor.errors import LedgerError
from proctor.ledger.entry import (
    AnyEntry,
    KeyEntry,
    RescoreEntry,
    ReviewEntry,
    SupersedeEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    evidence_digest,
    record_digest,
)
from proctor.ledger.head import read_head_of
from proctor.ledger.segments import Place
from proctor.ledger.standing import read_standing
from proctor.ledger.tree import HASH_SIZE, Frontier
from proctor.ledger.trial_rows import insert_trial, insert_withheld

VERSION = 6
"""Of the tables below; an index of another version is made anew."""

_TABLES = """
CREATE TABLE position (
    version INTEGER NOT NULL, size INTEGER NOT NULL, segment INTEGER NOT NULL,
    offset INTEGER NOT NULL, peaks BLOB NOT NULL, key TEXT NOT NULL
);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, at TEXT NOT NULL,
    segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, leaf BLOB NOT NULL
);
CREATE INDEX entries_kind ON entries (kind, seq) WHERE kind <> 'trial';
CREATE TABLE trials (
    seq INTEGER PRIMARY KEY, experiment_id TEXT NOT NULL, trial_id TEXT NOT NULL,
    record TEXT NOT NULL, status TEXT NOT NULL, completeness TEXT, dataset_id TEXT, task_id TEXT,
    harness TEXT, model TEXT, reward, timestamp TEXT, reason_code TEXT,
    evidence TEXT, evidence_files INTEGER NOT NULL, evidence_bytes INTEGER NOT NULL,
    revision TEXT, configuration TEXT, run_conditions INTEGER, task_conditions INTEGER,
    source TEXT, cost_usd REAL, tokens_in INTEGER, tokens_out INTEGER, advisor_calls INTEGER,
    seconds REAL, findings TEXT, collection TEXT, exception TEXT,
    sitter INTEGER
);
CREATE TABLE conditions (id INTEGER PRIMARY KEY, document BLOB NOT NULL UNIQUE);
CREATE UNIQUE INDEX trials_id ON trials (experiment_id, trial_id);
CREATE INDEX trials_trial ON trials (trial_id);
CREATE INDEX trials_task ON trials (task_id);
CREATE INDEX trials_model ON trials (model);
CREATE INDEX trials_dataset ON trials (dataset_id);
CREATE INDEX trials_collection ON trials (collection);
CREATE INDEX trials_record ON trials (record);
CREATE TABLE remarks (
    record TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, verdict TEXT,
    is_subject INTEGER NOT NULL
);
CREATE INDEX remarks_record ON remarks (record, seq);
CREATE INDEX remarks_verdict ON remarks (seq) WHERE verdict IS NOT NULL;
"""

_PATIENCE_SEC = 5
_INSERT_ENTRY = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Indexed:
    """A line of the log as the index takes it in."""

    place: Place
    length: int
    """Bytes, without the newline."""
    leaf: bytes
    entry: AnyEntry | Withheld


@dataclass(frozen=True, slots=True)
class Position:
    """How far the index has read."""

    place: Place
    frontier: Frontier
    key: str
    """The public key that signs there; empty at the very beginning."""


class Index:
    """An open index. Whoever opens it closes it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._conditions: dict[bytes, int] = {}
        """Rows of the table of that name, by their documents."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """The index in a file, made if it is missing or of another version.

        Raises:
            LedgerError: the file cannot be opened or written.
        """
        until = time.monotonic() + _PATIENCE_SEC
        while True:
            try:
                return cls(_connect(path))
            except sqlite3.Error as error:
                # Where several make it at once, SQLite refuses the change to WAL without waiting.
                if "locked" not in str(error) or time.monotonic() > until:
                    raise LedgerError(f"{path}: the index cannot be used: {error}") from error
            time.sleep(0.05)

    @classmethod
    def in_memory(cls) -> Self:
        """An index for one command, where none can be written."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        _create(connection)
        return cls(connection)

    @classmethod
    def read_only(cls, path: Path) -> Self | None:
        """The index in a file on a medium that cannot be written; None if it cannot be read."""
        try:
            connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
            if _version(connection) == VERSION:
                return cls(connection)
            connection.close()
        except sqlite3.Error:
            pass
        return None

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    def position(self) -> Position:
        """How far it has read."""
        row = self.connection.execute("SELECT size, segment, offset, peaks, key FROM position")
        size, segment, offset, peaks, key = row.fetchone()
        hashes = [peaks[at : at + HASH_SIZE] for at in range(0, len(peaks), HASH_SIZE)]
        return Position(Place(segment, offset), Frontier(size, hashes), key)

    def add(self, lines: Iterable[Indexed], position: Position, *, after: int) -> bool:
        """Take lines in, and remember how far that is; all or none.

        False, and nothing is taken in, where another process has moved it from `after` meanwhile.

        Raises:
            sqlite3.Error: the file cannot be written.
            DamageError: an entry holds no record, or is a trial that another entry is.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            if self.size() != after:
                self.connection.execute("ROLLBACK")
                return False
            for line in lines:
                self._add_line(line)
            frontier, place = position.frontier, position.place
            values = (frontier.size, place.segment, place.offset, b"".join(frontier.peaks))
            self.connection.execute(
                "UPDATE position SET size = ?, segment = ?, offset = ?, peaks = ?, key = ?",
                (*values, position.key),
            )
        except BaseException:
            self.connection.execute("ROLLBACK")
            self._conditions.clear()
            raise
        self.connection.execute("COMMIT")
        return True

    def size(self) -> int:
        """How many entries it has read."""
        (found,) = self.connection.execute("SELECT size FROM position").fetchone()
        return int(found)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """See one moment of it, whoever writes meanwhile."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("COMMIT")

    def _add_line(self, line: Indexed) -> None:
        entry, place = line.entry, line.place
        kind, at = ("", "") if isinstance(entry, Withheld) else (entry.kind, entry.at)
        row = (entry.seq, kind, at, place.segment, place.offset, line.length, line.leaf)
        self.connection.execute(_INSERT_ENTRY, row)
        match entry:
            case TrialEntry():
                self._add_trial(entry)
            case ReviewEntry() | RescoreEntry():
                self._remark(entry.subject.record, entry)
            case SupersedeEntry():
                self._remark(entry.subject.record, entry)
                self._remark(entry.by.record, entry, is_subject=False)
                self._set_status("superseded", entry.subject.record)
            case WithholdEntry():
                self._withhold(entry)
            case _:
                pass

    def _add_trial(self, entry: TrialEntry) -> None:
        standing = read_standing(entry)
        run = self._find_conditions(standing.run_conditions)
        task = self._find_conditions(standing.task_conditions)
        row = _trial_row(entry)
        more = (
            standing.revision, standing.configuration, run, task, standing.source,
            standing.cost_usd, standing.tokens_in, standing.tokens_out, standing.advisor_calls,
            standing.seconds, standing.findings, standing.collection, standing.exception,
            self._find_conditions(standing.sitter),
        )  # fmt: skip
        insert_trial(self.connection, (*row, *more))

    def _find_conditions(self, document: bytes) -> int:
        """The row that holds a document; what many trials have in common is kept once."""
        if document not in self._conditions:
            self.connection.execute(
                "INSERT OR IGNORE INTO conditions (document) VALUES (?)", (document,)
            )
            (found,) = self.connection.execute(
                "SELECT id FROM conditions WHERE document = ?", (document,)
            ).fetchone()
            self._conditions[document] = found
        return self._conditions[document]

    def _remark(self, record: str, entry: AnyEntry, *, is_subject: bool = True) -> None:
        verdict = entry.verdict if isinstance(entry, ReviewEntry) else None
        self.connection.execute(
            "INSERT INTO remarks VALUES (?, ?, ?, ?, ?)",
            (record, entry.seq, entry.kind, verdict, is_subject),
        )

    def _set_status(self, status: str, record: str) -> None:
        self.connection.execute(
            "UPDATE trials SET status = ? WHERE record = ? AND status <> 'withheld'",
            (status, record),
        )

    def _withhold(self, entry: WithholdEntry) -> None:
        if entry.subject is not None:
            self._remark(entry.subject.record, entry)
            insert_withheld(self.connection, entry)

    def forget(self) -> None:
        """Begin anew: for an index that does not fit its log."""
        self.connection.execute("BEGIN IMMEDIATE")
        self._conditions.clear()
        for table in ("entries", "trials", "conditions", "remarks"):
            self.connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
        self.connection.execute(
            "UPDATE position SET size = 0, segment = 0, offset = 0, peaks = x'', key = ''"
        )
        self.connection.execute("COMMIT")

    def erase(self) -> None:
        """Begin anew, and leave nothing of what it held in the file: bytes were taken out."""
        self.forget()
        self.connection.execute("VACUUM")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def find_line(self, seq: int) -> tuple[Place, int] | None:
        """Where an entry's line is, and how long."""
        found = self.connection.execute(
            "SELECT segment, offset, length FROM entries WHERE seq = ?", (seq,)
        ).fetchone()
        return (Place(found[0], found[1]), found[2]) if found else None

    def find_trial(self, experiment_id: str, trial_id: str) -> tuple[int, str, str | None] | None:
        """Where a trial is sealed, with which record and which evidence."""
        found = self.connection.execute(
            "SELECT seq, record, evidence FROM trials WHERE experiment_id = ? AND trial_id = ?",
            (experiment_id, trial_id),
        ).fetchone()
        return (found[0], found[1], found[2]) if found else None

    def leaves(self, size: int) -> list[bytes]:
        """The leaf hashes of the first entries."""
        rows = self.connection.execute(
            "SELECT leaf FROM entries WHERE seq < ? ORDER BY seq", (size,)
        )
        return [leaf for (leaf,) in rows]

    def select(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a query over the tables.

        Raises:
            LedgerError: the file is damaged.
        """
        return list(self.stream(query, values))

    def stream(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, one at a time: many need not be held at once.

        Raises:
            LedgerError: the file is damaged.
        """
        try:
            # Not `yield from`: what is left open at an interrupt would ask the cursor to close.
            for row in self.connection.execute(query, values):  # noqa: UP028
                yield row
        except sqlite3.DatabaseError as error:
            raise LedgerError(
                f"index.sqlite cannot be used: {error}; delete it, and it is made again"
            ) from error


def _trial_row(entry: TrialEntry) -> tuple[object, ...]:
    head = read_head_of(entry)
    return (
        entry.seq, head.experiment_id, head.trial_id, record_digest(entry), head.status,
        head.completeness, head.dataset_id, head.task.task_id, head.agent.adapter,
        head.agent.model, head.evaluation.reward, head.when, entry.reason_code,
        evidence_digest(entry), len(entry.evidence), sum(file.size for file in entry.evidence),
    )  # fmt: skip


def key_after(key: str, entry: AnyEntry | Withheld) -> str:
    """The key that signs once this entry is in the log."""
    return entry.key if isinstance(entry, KeyEntry) else key


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    try:
        # Consistent after a crash, and no waiting for the disk: what is lost is read again.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        version = _version(connection)
    except sqlite3.OperationalError:
        # It may be in order, and only not to be written.
        connection.close()
        raise
    except sqlite3.DatabaseError:
        # No database at all, or a torn one; what it held stands in the log.
        connection.close()
        _remove(path)
        connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        version = None
    if version != VERSION:
        _create(connection)
    return connection


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)


def _version(connection: sqlite3.Connection) -> int | None:
    """The version of an index; None where there is none yet."""
    tables = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'position'").fetchone()
    if tables is None:
        return None
    row = connection.execute("SELECT version FROM position").fetchone()
    return row[0] if row else None


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have made it while this one waited.
        if _version(connection) != VERSION:
            names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            for (name,) in names.fetchall():
                connection.execute(f'DROP TABLE "{name}"')
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute("INSERT INTO position VALUES (?, 0, 0, 0, x'', '')", (VERSION,))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
