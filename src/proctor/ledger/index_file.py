"""The file of an index: its tables, and how it is opened or made. Nothing here reads a log."""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from proctor.ledger.derived import expect_schema, list_schema, remove_database
from proctor.ledger.row import declare_columns

VERSION = 8
"""Of the tables below; an index of another version is made anew."""

_TABLES = f"""
CREATE TABLE position (
    version INTEGER NOT NULL, size INTEGER NOT NULL, segment INTEGER NOT NULL,
    offset INTEGER NOT NULL, peaks BLOB NOT NULL, key TEXT NOT NULL, origin TEXT NOT NULL
);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, at TEXT NOT NULL,
    segment INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, leaf BLOB NOT NULL
);
CREATE INDEX entries_kind ON entries (kind, seq) WHERE kind <> 'trial';
CREATE TABLE trials ({declare_columns()});
CREATE TABLE conditions (id INTEGER PRIMARY KEY, document BLOB NOT NULL UNIQUE);
CREATE UNIQUE INDEX trials_id ON trials (experiment_id, trial_id);
CREATE INDEX trials_trial ON trials (trial_id);
CREATE INDEX trials_task ON trials (task_id);
CREATE INDEX trials_model ON trials (model);
CREATE INDEX trials_dataset ON trials (dataset_id);
CREATE INDEX trials_record ON trials (record);
CREATE TABLE remarks (
    record TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, verdict TEXT,
    is_subject INTEGER NOT NULL
);
CREATE INDEX remarks_record ON remarks (record, seq);
CREATE INDEX remarks_verdict ON remarks (seq) WHERE verdict IS NOT NULL;
CREATE INDEX remarks_supersede ON remarks (seq) WHERE kind = 'supersede';
CREATE TABLE withholdings (
    seq INTEGER PRIMARY KEY, entry INTEGER, is_named INTEGER NOT NULL, artifacts INTEGER NOT NULL
);
CREATE INDEX withholdings_entry ON withholdings (entry);
"""
ALL_TABLES = ("entries", "trials", "conditions", "remarks", "withholdings")


def has_schema(connection: sqlite3.Connection) -> bool:
    """Whether a database defines what an index does, and nothing else."""
    return list_schema(connection) == expect_schema(_create_tables)


def is_of(connection: sqlite3.Connection, origin: str) -> bool:
    """Whether a database is the index of the log with this origin, of this version."""
    if not has_schema(connection):
        return False
    found = connection.execute("SELECT version, origin FROM position").fetchall()
    return found == [(VERSION, origin)]


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only one who opens an index there: it may be deleted, and the files beside it too."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder / "lock", flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def connect(path: Path, origin: str) -> sqlite3.Connection:
    """The index in a file; whatever else is there is deleted. Call it `alone`.

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
        raise OSError(f"{path}: what was just made is not as it was made")
    return connection


def _try_connect(path: Path, origin: str) -> sqlite3.Connection | None:
    """An open index; None where the file is something else."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        # Consistent after a crash, and no waiting for the disk: what is lost is read again.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if not list_schema(connection):
            create(connection, origin)
        if is_of(connection, origin):
            return connection
    except sqlite3.OperationalError:
        # It may be in order, and only not to be written.
        connection.close()
        raise
    except sqlite3.DatabaseError:
        pass  # no database at all, or a torn one; what it held stands in the log
    connection.close()
    return None


def create(connection: sqlite3.Connection, origin: str) -> None:
    """Make the tables, in a database without any."""
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
