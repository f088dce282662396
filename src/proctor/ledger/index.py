"""The index of a ledger in SQLite, in the user's cache (derived.py).

It stores the origin of its log. A file with another origin, another version or an unexpected schema
is deleted and built again from the log.
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from proctor.errors import DamageError, LedgerError
from proctor.ledger.admission import render_duplicate, render_misnamed
from proctor.ledger.counting import read_supersessions, update_statuses
from proctor.ledger.derived import (
    INDEX,
    expect_schema,
    find_folder,
    list_schema,
    remove_database,
)
from proctor.ledger.entry import (
    Subject,
    TrialEntry,
    Withheld,
    WithholdEntry,
)
from proctor.ledger.log import Place
from proctor.ledger.row import (
    COLUMNS,
    DOCUMENTS,
    IS_WITHHELD,
    TrialRow,
    declare_columns,
    evidence_key,
    from_columns,
    kind_and_time,
    read_row,
    remark_columns,
    to_columns,
    withheld_columns,
)
from proctor.ledger.tree import BRANCHES, HASH_SIZE, Frontier, root_of
from proctor.ledger.trial_index import (
    EVERYTHING,
    Indexed,
    IndexedEntry,
    Position,
    TrialFilter,
    check_text,
    format_since,
)

# Version of the tables below; an index of another version is built again.
VERSION = 12

_TABLES = f"""
CREATE TABLE position (
    version INTEGER NOT NULL, size INTEGER NOT NULL, segment INTEGER NOT NULL,
    offset INTEGER NOT NULL, peaks BLOB NOT NULL, key TEXT NOT NULL, origin TEXT NOT NULL
);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, at TEXT NOT NULL,
    segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, leaf BLOB NOT NULL
);
CREATE TABLE hashes (
    level INTEGER NOT NULL, number INTEGER NOT NULL, hash BLOB NOT NULL, PRIMARY KEY (level, number)
) WITHOUT ROWID;
CREATE INDEX entries_kind ON entries (kind, seq) WHERE kind <> 'trial';
CREATE TABLE trials ({declare_columns()});
CREATE TABLE conditions (id INTEGER PRIMARY KEY, document BLOB NOT NULL UNIQUE);
CREATE UNIQUE INDEX trials_id ON trials (experiment_id, trial_id);
CREATE INDEX trials_trial ON trials (trial_id);
CREATE INDEX trials_task ON trials (task_id);
CREATE INDEX trials_model ON trials (model);
CREATE INDEX trials_dataset ON trials (dataset_id);
CREATE INDEX trials_record ON trials (record);
CREATE INDEX trials_run_conditions ON trials (run_conditions);
CREATE INDEX trials_task_conditions ON trials (task_conditions);
CREATE TABLE evidence (key INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (key, seq)
) WITHOUT ROWID;
CREATE TABLE remarks (
    record TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, verdict TEXT,
    is_subject INTEGER NOT NULL
);
CREATE INDEX remarks_record ON remarks (record, seq);
CREATE INDEX remarks_verdict ON remarks (seq) WHERE verdict IS NOT NULL;
CREATE INDEX remarks_supersede ON remarks (seq) WHERE kind = 'supersede';
CREATE TABLE withholdings (
    seq INTEGER PRIMARY KEY, entry INTEGER
);
CREATE INDEX withholdings_entry ON withholdings (entry);
"""
ALL_TABLES = ("entries", "hashes", "trials", "evidence", "conditions", "remarks", "withholdings")
_PATIENCE_SEC = 5
_INSERT_ENTRY = "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_TRIAL = f"INSERT INTO trials VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
_SUBJECT = ("experiment_id", "trial_id", "record")
_NAMED = "SELECT seq FROM trials WHERE experiment_id = ? AND trial_id = ?"
_AT = "SELECT experiment_id, trial_id, record FROM trials WHERE seq = ?"
_REVIEWS = "SELECT record, verdict FROM remarks WHERE verdict IS NOT NULL AND seq < ? ORDER BY seq"
_ENTRY = "SELECT seq, kind, at, segment, offset, length, leaf FROM entries"
_LEAVES = "SELECT leaf FROM entries WHERE seq >= ? AND seq < ? ORDER BY seq"
_HASHES = "SELECT hash FROM hashes WHERE level = ? AND number >= ? AND number < ? ORDER BY number"
_REMARKED = " JOIN trials USING (record)"
_HIGHEST = "\U0010ffff"
_CONDITIONS = {
    "experiment": "experiment_id = ?",
    "trial": "trial_id = ?",
    "dataset": "dataset_id = ?",
    "harness": "agent = ?",
    "model": "model = ?",
    "status": "status = ?",
    "lowest": "reward >= ?",
    "highest": "reward <= ?",
    "from_seq": "seq >= ?",
}
_PREFIXES = {"task": "task_id", "trial_prefix": "trial_id", "record_prefix": "record"}
_SETS = {"seqs": "seq", "experiments": "experiment_id"}


class Index:
    """An open index; close it after use."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None = None) -> None:
        self.connection = connection
        self.path = path
        """Its file; None if it is in memory."""
        # Ids in the table `conditions`, by document, for one transaction.
        self._conditions: dict[bytes, int] = {}

    @classmethod
    def open(cls, path: Path, origin: str) -> Self:
        """Open the index of the log with this origin; any other file is replaced by a new index.

        Raises:
            LedgerError: the file cannot be opened or written.
        """
        until = time.monotonic() + _PATIENCE_SEC
        while True:
            try:
                with alone(path.parent):
                    return cls(_connect(path, origin), path)
            except (sqlite3.Error, OSError) as error:
                # SQLite reports a lock at once, without its timeout, when the journal mode changes.
                if "locked" not in str(error) or time.monotonic() > until:
                    raise LedgerError(f"{path}: the index cannot be used: {error}") from error
            time.sleep(0.05)

    @classmethod
    def in_memory(cls, origin: str) -> Self:
        """A temporary index, for when no file can be written."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        create(connection, origin)
        return cls(connection)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def position(self) -> Position:
        """The position up to which the log was read."""
        row = self.connection.execute("SELECT size, segment, offset, peaks, key FROM position")
        size, segment, offset, peaks, key = row.fetchone()
        hashes = [peaks[at : at + HASH_SIZE] for at in range(0, len(peaks), HASH_SIZE)]
        return Position(Place(segment, offset), Frontier(size, hashes), key)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """All or nothing; the only writer."""
        self.connection.execute("BEGIN IMMEDIATE")
        # Another process may have deleted some, and given their ids to others.
        self._conditions.clear()
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def add(self, lines: Iterable[Indexed], position: Position, *, after: int) -> bool:
        """Add lines and store the new position, all or nothing.

        Returns False, without adding, if another process has moved the index from `after` since.
        """
        with self._writing():
            # Optimistic concurrency: another process may have added the same lines since they were
            # read.
            if self.size() != after:
                return False
            for line in lines:
                self._add_line(line)
            update_statuses(self.connection)
            frontier, place = position.frontier, position.place
            self._add_hashes(after, frontier.size)
            values = (frontier.size, place.segment, place.offset, b"".join(frontier.peaks))
            self.connection.execute(
                "UPDATE position SET size = ?, segment = ?, offset = ?, peaks = ?, key = ?",
                (*values, position.key),
            )
        return True

    def _add_hashes(self, before: int, size: int) -> None:
        """Add the roots of the subtrees that were completed between two sizes."""
        level = 0
        while size := size // BRANCHES:
            before //= BRANCHES
            for number in range(before, size):
                below = self.hashes(level, number * BRANCHES, (number + 1) * BRANCHES)
                values = (level + 1, number, root_of(below))
                self.connection.execute("INSERT INTO hashes VALUES (?, ?, ?)", values)
            level += 1

    def size(self) -> int:
        """The number of entries read."""
        (found,) = self.connection.execute("SELECT size FROM position").fetchone()
        return int(found)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read one consistent state, even if another process writes."""
        self.connection.execute("BEGIN")
        try:
            yield
        finally:
            self.connection.execute("COMMIT")

    def _add_line(self, line: Indexed) -> None:
        entry, place = line.entry, line.place
        where = (place.segment, place.offset, line.length, line.leaf)
        self.connection.execute(_INSERT_ENTRY, (entry.seq, *kind_and_time(entry), *where))
        if isinstance(entry, TrialEntry):
            values = list(to_columns(line.row or read_row(entry)))
            for column in DOCUMENTS:
                values[column] = self._find_conditions(values[column])
            self._insert_trial(values)
            keys = {evidence_key(file.sha256) for file in entry.evidence}
            rows = ((key, entry.seq) for key in keys)
            self.connection.executemany("INSERT OR IGNORE INTO evidence VALUES (?, ?)", rows)
        elif not isinstance(entry, Withheld):
            execute = self.connection.execute
            for row in remark_columns(entry):
                execute("INSERT INTO remarks VALUES (?, ?, ?, ?, ?)", row)
            if isinstance(entry, WithholdEntry):
                execute("INSERT INTO withholdings VALUES (?, ?)", (entry.seq, entry.entry))
                self._insert_withheld(entry)

    def _insert_trial(self, row: Sequence[Any]) -> None:
        try:
            self.connection.execute(_INSERT_TRIAL, row)
        except sqlite3.IntegrityError as error:
            seq, *name = row[:3]
            found = self.connection.execute(_NAMED, name).fetchone()
            if found is None:
                raise
            raise DamageError(render_duplicate(found[0], seq, *name)) from error

    def _insert_withheld(self, entry: WithholdEntry) -> None:
        """Add a row for the trial whose line an entry withholds, if there is none.

        Raises DamageError if that line is, or was said to be, another trial.
        """
        row, subject, seq = withheld_columns(entry), entry.subject, entry.entry
        if row is None or subject is None or seq is None:
            return
        execute = self.connection.execute
        known = execute(_AT, (seq,)).fetchone()
        kind = execute("SELECT kind FROM entries WHERE seq = ?", (seq,)).fetchone()
        if known is None and kind == ("",):
            # Only the withholding with the right leaf hash names this line: see ledger.withheld.
            if execute(IS_WITHHELD, (seq, entry.leaf)).fetchone():
                self._insert_trial(row)
        # If the line is still there, it is about to be withheld.
        elif known != row[1:4]:
            found = Subject(**dict(zip(_SUBJECT, known, strict=True))) if known else None
            raise DamageError(render_misnamed(entry.seq, seq, subject, found))

    def _find_conditions(self, document: Any) -> int:
        """The id of a document, which is inserted if it is new."""
        if document not in self._conditions:
            self.connection.execute(
                "INSERT OR IGNORE INTO conditions (document) VALUES (?)", (document,)
            )
            (found,) = self.connection.execute(
                "SELECT id FROM conditions WHERE document = ?", (document,)
            ).fetchone()
            self._conditions[document] = found
        return self._conditions[document]

    def erase(self) -> None:
        """Delete all rows, leaving no withheld bytes in the file."""
        self.connection.execute("BEGIN IMMEDIATE")
        for table in ALL_TABLES:
            self.connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
        self.connection.execute(
            "UPDATE position SET size = 0, segment = 0, offset = 0, peaks = x'', key = ''"
        )
        self.connection.execute("COMMIT")
        # SQLite leaves deleted rows in free pages and in the WAL: rewrite the first, truncate the
        # other.
        self.connection.execute("VACUUM")
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def entry(self, seq: int) -> IndexedEntry | None:
        """The indexed entry at a position, or None."""
        return next(self._entries("WHERE seq = ?", (seq,)), None)

    def entries(self, first: int, end: int) -> list[IndexedEntry]:
        """The entries from `first` up to before `end`, in order."""
        return list(self._entries("WHERE seq >= ? AND seq < ? ORDER BY seq", (first, end)))

    def withheld_lines(self) -> list[IndexedEntry]:
        """The entries that withholdings name, whether or not their lines are withheld now."""
        return list(self._entries("WHERE seq IN (SELECT entry FROM withholdings)"))

    def _entries(self, where: str, values: Sequence[Any] = ()) -> Iterator[IndexedEntry]:
        for seq, kind, at, segment, offset, *rest in self.stream(f"{_ENTRY} {where}", values):
            yield IndexedEntry(seq, kind, at, Place(segment, offset), *rest)

    def naming(self, sha256: str) -> Iterator[int]:
        """Positions of the trials that name this evidence: see `TrialIndex`."""
        query = "SELECT seq FROM evidence WHERE key = ? ORDER BY seq"
        return (seq for (seq,) in self.stream(query, (evidence_key(sha256),)))

    def find_trial(self, experiment_id: str, trial_id: str) -> tuple[int, str, str | None] | None:
        """The position, record digest and evidence digest of a sealed trial, or None."""
        found = self.connection.execute(
            "SELECT seq, record, evidence FROM trials WHERE experiment_id = ? AND trial_id = ?",
            (experiment_id, trial_id),
        ).fetchone()
        return (found[0], found[1], found[2]) if found else None

    def hashes(self, level: int, first: int, end: int) -> list[bytes]:
        """Consecutive hashes of the Merkle tree: see `TrialIndex`."""
        if level == 0:
            rows = self.stream(_LEAVES, (first, end))
        else:
            rows = self.stream(_HASHES, (level, first, end))
        return [found for (found,) in rows]

    def trials(self, wanted: TrialFilter, *, size: int = EVERYTHING) -> Iterator[TrialRow]:
        """The trials that a filter selects: see `TrialIndex`."""
        conditions = [("seq < ?", (size,)), *_make_conditions(wanted)]
        where = f"WHERE {' AND '.join(each for each, _ in conditions)}"
        values = [value for _, given in conditions for value in given]
        query = f"SELECT {', '.join(COLUMNS)} FROM trials {where} ORDER BY seq"  # noqa: S608
        # The last rows, but in the order of sealing: select in reverse, then sort.
        if wanted.limit is not None:
            query = f"SELECT * FROM ({query} DESC LIMIT {wanted.limit:d}) ORDER BY seq"  # noqa: S608
        if wanted.first is not None:
            query += f" LIMIT {wanted.first:d}"
        documents = dict(self.select("SELECT id, document FROM conditions"))
        reviews = dict(self.select(_REVIEWS, (size,)))
        return from_columns(self.stream(query, values), documents, reviews)

    def supersessions(self, size: int = EVERYTHING) -> dict[str, str | None]:
        """Why each supersession does not count: see `TrialIndex`."""
        return read_supersessions(self.connection, size)

    def places(self, kind: str, *, size: int = EVERYTHING) -> list[int]:
        """Positions of the entries of a kind among the first `size` entries, in order."""
        query = f"SELECT seq FROM entries WHERE {_of_kind(kind)} AND seq < ? ORDER BY seq"  # noqa: S608
        return [seq for (seq,) in self.select(query, (kind, size))]

    def remarks(
        self,
        *,
        record: str | None = None,
        experiment: str | None = None,
        kind: str | None = None,
        size: int = EVERYTHING,
    ) -> list[int]:
        """Positions of the entries about a record, about an experiment's trials, or of a kind."""
        asked = {"remarks.record": record, "trials.experiment_id": experiment, "remarks.kind": kind}
        given = {column: value for column, value in asked.items() if value is not None}
        where = " AND ".join(["remarks.seq < ?", *(f"{column} = ?" for column in given)])
        tables = f"remarks{_REMARKED if experiment is not None else ''}"
        query = f"SELECT DISTINCT remarks.seq FROM {tables} WHERE {where} ORDER BY 1"  # noqa: S608
        return [seq for (seq,) in self.select(query, (size, *given.values()))]

    def latest_entries(
        self, count: int, *, before: int | None = None, kind: str | None = None
    ) -> list[IndexedEntry]:
        """The last entries, newest first."""
        values: list[Any] = [EVERYTHING if before is None else before]
        where = "WHERE seq < ?"
        if kind is not None:
            where, values = f"{where} AND {_of_kind(kind)}", [*values, kind]
        return list(self._entries(f"{where} ORDER BY seq DESC LIMIT ?", (*values, count)))

    def count_kinds(self, *, size: int = EVERYTHING) -> dict[str, int]:
        """The number of entries of each kind; withheld entries have the kind ""."""
        query = "SELECT kind, count(*) FROM entries WHERE seq < ? GROUP BY kind"
        return dict(self.select(query, (size,)))

    def datasets(self, *, size: int = EVERYTHING) -> list[tuple[str, int, int]]:
        """Every dataset by name, with its number of trials and of experiments."""
        query = (
            "SELECT dataset_id, count(*), count(DISTINCT experiment_id) FROM trials "
            "WHERE dataset_id IS NOT NULL AND seq < ? GROUP BY dataset_id ORDER BY dataset_id"
        )
        return [(name, trials, number) for name, trials, number in self.select(query, (size,))]

    def experiments(self, words: str = "") -> list[tuple[str, int]]:
        """Experiments with the position of their last trial, most recent first.

        With `words`, only those whose name, agent, model or dataset contains them.
        """
        columns = ("experiment_id", "agent", "model", "dataset_id")
        text = " || ' ' || ".join(f"coalesce({column}, '')" for column in columns)
        query = (
            "SELECT experiment_id, max(seq) FROM trials GROUP BY experiment_id "  # noqa: S608
            f"HAVING max(instr(lower({text}), ?)) ORDER BY 2 DESC"
        )
        return [(name, last) for name, last in self.select(query, (words.lower(),))]

    def experiment_version(self, name: str) -> str | None:
        """A string that changes with each trial of an experiment and each entry of another kind.

        None if the experiment has no trial.
        """
        query = "SELECT count(*), max(seq) FROM trials WHERE experiment_id = ?"
        ((number, last),) = self.select(query, (name,))
        if not number:
            return None
        # Entries about any trial of the ledger: finding those of this experiment would take longer
        # than rendering the page that the version is for.
        ((said,),) = self.select("SELECT max(seq) FROM entries WHERE kind <> 'trial'")
        return f"{number}-{last}-{said}"

    def select(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return list(self.stream(query, values))

    def stream(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, one at a time.

        Raises:
            LedgerError: the file is damaged.
        """
        try:
            # Not `yield from`: on an interrupt, a generator left open would call `close` on the
            # cursor.
            for row in self.connection.execute(query, values):  # noqa: UP028
                yield row
        except sqlite3.DatabaseError as error:
            where = self.path or "the index in memory"
            raise LedgerError(
                f"{where}: cannot be used: {error}; delete it: proctor builds it again"
            ) from error


def open_index(directory: Path, origin: str) -> Index:
    """Open the index of a ledger; if it cannot be written, a slower one in memory."""
    folder = find_folder(directory)
    if folder is not None:
        with contextlib.suppress(LedgerError):
            return Index.open(folder / INDEX, origin)
    return Index.in_memory(origin)


def has_schema(connection: sqlite3.Connection) -> bool:
    """Whether a database has exactly the schema of an index."""
    return list_schema(connection) == expect_schema(_create_tables)


def is_of(connection: sqlite3.Connection, origin: str) -> bool:
    """Whether a database is the index of the log with this origin, in this version."""
    if not has_schema(connection):
        return False
    found = connection.execute("SELECT version, origin FROM position").fetchall()
    return found == [(VERSION, origin)]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock for opening an index there: opening may delete it with the files beside it."""
    # A lock file beside the database, because the database itself may be deleted and replaced.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder / "lock", flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _connect(path: Path, origin: str) -> sqlite3.Connection:
    """Open the index in a file; anything else there is deleted. Call it inside `alone`.

    Raises:
        OSError, sqlite3.Error: it cannot be read or written.
    """
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()):
        remove_database(path)
    connection = _try_connect(path, origin)
    if connection is None:
        remove_database(path)
        connection = _try_connect(path, origin)
    if connection is None:
        raise OSError(f"{path}: the new index does not have the expected schema")
    return connection


def _try_connect(path: Path, origin: str) -> sqlite3.Connection | None:
    """An open index; None if the file is something else."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    try:
        # The file may have been tampered with: no functions are called from its schema.
        connection.execute("PRAGMA trusted_schema = OFF")
        # Consistent after a crash without waiting for the disk: lost rows are read from the log
        # again.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        # Deleted rows are overwritten: they may have been withheld.
        connection.execute("PRAGMA secure_delete = ON")
        if not list_schema(connection):
            create(connection, origin)
        if is_of(connection, origin):
            return connection
    except sqlite3.OperationalError:
        # It may be valid but not writable.
        connection.close()
        raise
    except sqlite3.DatabaseError:
        pass  # not a database, or a damaged one; its content is in the log
    connection.close()
    return None


def create(connection: sqlite3.Connection, origin: str) -> None:
    """Create the tables in an empty database."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        _create_tables(connection)
        values = (VERSION, origin)
        connection.execute("INSERT INTO position VALUES (?, 0, 0, 0, x'', '', ?)", values)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.split(";\n"):
        connection.execute(statement)


# A condition in SQL, and its values.
type _Condition = tuple[str, Sequence[Any]]


def _of_kind(kind: str) -> str:
    # SQLite uses the index over few kinds only where a query repeats the index's own condition;
    # without it, every entry of the log is looked at.
    return "kind = ?" if kind == "trial" else "kind = ? AND kind <> 'trial'"


def _make_conditions(wanted: TrialFilter) -> Iterator[_Condition]:
    for field in fields(wanted):
        value = getattr(wanted, field.name)
        if value is None:
            continue
        # No ledger contains control characters or lone surrogates: report the mistake instead of an
        # empty list.
        if isinstance(value, str):
            check_text(value, field.name)
        if condition := _CONDITIONS.get(field.name):
            yield condition, (value,)
        elif column := _PREFIXES.get(field.name):
            # A range instead of LIKE, which is case-insensitive and would not use the SQL index.
            yield f"{column} >= ? AND {column} < ?", (value, value + _HIGHEST)
        elif column := _SETS.get(field.name):
            yield f"{column} IN ({', '.join('?' * len(value))})", value
    if wanted.since is not None:
        yield "timestamp >= ?", (format_since(wanted.since),)
    for name in wanted.names:
        pattern = name.pattern
        for sign in "\\%_":
            pattern = pattern.replace(sign, f"\\{sign}")
        pattern = pattern.replace("*", "%")
        # LIKE ignores the case of ASCII letters.
        fits = f"({name.column} LIKE ? ESCAPE '\\' OR {name.column} LIKE ? ESCAPE '\\')"
        yield f"NOT coalesce({fits}, 0)" if name.is_not else fits, (pattern, f"%/{pattern}")
