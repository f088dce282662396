"""The SQLite file of an index: its tables, and how it is opened or created."""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from proctor.ledger.derived import expect_schema, list_schema, remove_database
from proctor.ledger.row import declare_columns

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


def connect(path: Path, origin: str) -> sqlite3.Connection:
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
