"""search.sqlite: an FTS5 index of rows, and their packed texts for snippets.

    position   which log was read, up to which entry, and the frontier of its tree there
    rows       FTS5 without content: the words of a row, by its number
    blocks     consecutive rows, compressed, by the number of the first
    read       the entries that were read, and how many rows each has
    absent     evidence that was missing when its trial was read
    doomed     evidence that still existed, although an entry says that it was withheld
    problems   messages about what could not be read

A row's number is the index of its entry in the log, then its index among the rows of the entry: the
newest rows have the highest numbers, and a trial's rows are together. There is no write-ahead log:
SQLite would create its file again next to an index that was removed because of a secret.
"""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Self

from proctor.errors import LedgerError
from proctor.ledger.derived import expect_schema, list_schema, remove_index
from proctor.ledger.tree import HASH_SIZE, Frontier
from proctor.search.pieces import Piece, unpack_rows
from proctor.search.row import Row

VERSION = 4
"""Version of the tables and their contents; an index of another version is built again."""
ROW_BITS = 32
"""Bits of a row's number that count rows within an entry."""

_TABLES = """
CREATE TABLE position (
    version INTEGER NOT NULL, size INTEGER NOT NULL, peaks BLOB NOT NULL, origin TEXT NOT NULL
);
CREATE TABLE blocks (first INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE read (seq INTEGER PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE absent (sha256 TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE doomed (sha256 TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE problems (seq INTEGER NOT NULL, sentence TEXT NOT NULL);
CREATE VIRTUAL TABLE rows USING fts5(body, content='', tokenize='unicode61 remove_diacritics 2');
INSERT INTO rows (rows, rank) VALUES ('pgsz', 8000);
INSERT INTO rows (rows, rank) VALUES ('hashsize', 16777216);
INSERT INTO rows (rows, rank) VALUES ('automerge', 0);
INSERT INTO rows (rows, rank) VALUES ('crisismerge', 16)
"""
# Postings are collected in 16 MiB of memory before they are written, and merged only when there are
# many: twice as fast to build as with the default settings, and no slower to query.

_SETTINGS = (
    "trusted_schema = OFF",
    "page_size = 8192",
    "cache_size = -32768",
    "synchronous = NORMAL",
)
_WAIT_SECONDS = 1.0
_TRIES = 10


class MovedError(Exception):
    """Another process changed or removed the index: start over."""


class SearchIndex:
    """An open index. The caller closes it."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, inode: int, origin: str
    ) -> None:
        self.connection = connection
        self.path = path
        self.origin = origin
        """The origin of the log it was built from."""
        self._inode = inode

    @classmethod
    def open(cls, path: Path, origin: str) -> Self:
        """Open the index in a file; build it if it is missing, damaged, of another log or version.

        Raises:
            LedgerError: the file cannot be opened or written.
        """
        for _ in range(_TRIES):
            try:
                found = cls._open_once(path, origin)
            except (sqlite3.OperationalError, OSError) as error:
                raise LedgerError(f"{path}: the index cannot be used: {error}") from error
            except sqlite3.DatabaseError:
                found = None
            if found is not None:
                return found
            try:
                remove_index(path)
            except OSError as error:
                raise LedgerError(f"{path}: the index cannot be used: {error}") from error
        raise LedgerError(f"{path}: the index cannot be built; delete it and search again")

    @classmethod
    def _open_once(cls, path: Path, origin: str) -> Self | None:
        """The existing index; None if it must be built again."""
        if path.is_symlink() or (path.exists() and not path.is_file()):
            return None
        with contextlib.suppress(FileExistsError):
            # Only for a new file: closing one that this process has open would release its locks.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        inode = path.stat().st_ino
        connection = sqlite3.connect(path, isolation_level=None, timeout=_WAIT_SECONDS)
        found = cls(connection, path, inode, origin)
        try:
            is_ours = found._prepare()
            is_same = path.stat().st_ino == inode
        except BaseException:
            connection.close()
            raise
        if is_ours and is_same:
            return found
        connection.close()
        return None

    @classmethod
    def in_memory(cls) -> Self:
        """An index for one command, where no file can be written."""
        found = cls(sqlite3.connect(":memory:", isolation_level=None), None, 0, "")
        found._prepare()
        return found

    def _prepare(self) -> bool:
        """Create missing tables; return whether this is an index of this log."""
        execute = self.connection.execute
        for setting in _SETTINGS:
            waiting(partial(execute, f"PRAGMA {setting}"))
        if not waiting(lambda: list_schema(self.connection)):
            waiting(lambda: execute("BEGIN IMMEDIATE"))
            # Another process may have created them while this one waited.
            if not list_schema(self.connection):
                _create_tables(self.connection)
                values = (VERSION, self.origin)
                execute("INSERT INTO position VALUES (?, 0, x'', ?)", values)
            waiting(lambda: execute("COMMIT"))
        return waiting(lambda: is_of(self.connection, self.origin))

    def close(self) -> None:
        """Close the file."""
        self.connection.close()

    def position(self) -> Frontier:
        """How far it has read, as the frontier of the log's tree there."""
        size, peaks = self.connection.execute("SELECT size, peaks FROM position").fetchone()
        hashes = [peaks[at : at + HASH_SIZE] for at in range(0, len(peaks), HASH_SIZE)]
        return Frontier(size, hashes)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read one state of it; a concurrent writer waits."""
        self.connection.execute("BEGIN")
        waiting(self.position)
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK")

    def begin(self, after: int) -> None:
        """Become the only writer of an index that has read `after` entries.

        Raises:
            MovedError: it was removed, or another process has written to it.
        """
        waiting(lambda: self.connection.execute("BEGIN IMMEDIATE"))
        if not self._is_there() or self.position().size != after:
            self.connection.execute("ROLLBACK")
            raise MovedError

    def _is_there(self) -> bool:
        if self.path is None:
            return True
        try:
            return self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def add(self, piece: Piece, at: int) -> int:
        """Add a piece of an entry, between `begin` and `commit`; `at` rows of the entry precede it.

        Returns the number of rows of the entry so far.
        """
        first = (piece.seq << ROW_BITS) + at
        if piece.documents:
            self.connection.executemany(
                "INSERT INTO rows (rowid, body) VALUES (?, CAST(? AS TEXT))",
                enumerate(piece.documents, first),
            )
            self.connection.execute("INSERT INTO blocks VALUES (?, ?)", (first, piece.packed))
        for sha256 in piece.absent:
            self.note_absent(sha256)
        for sentence in piece.problems:
            self.connection.execute("INSERT INTO problems VALUES (?, ?)", (piece.seq, sentence))
        number = at + len(piece.documents)
        if piece.is_last:
            self.connection.execute("INSERT INTO read VALUES (?, ?)", (piece.seq, number))
        return number

    def note_absent(self, what: str) -> None:
        """Remember missing evidence."""
        self.connection.execute("INSERT OR IGNORE INTO absent VALUES (?)", (what,))

    def note_doomed(self, what: str) -> None:
        """Remember evidence that is about to be withheld, between `begin` and `commit`."""
        self.connection.execute("INSERT OR IGNORE INTO doomed VALUES (?)", (what,))

    def commit(self, frontier: Frontier) -> None:
        """Store what was added, and how far the log was read for it."""
        peaks = b"".join(frontier.peaks)
        self.connection.execute("UPDATE position SET size = ?, peaks = ?", (frontier.size, peaks))
        waiting(lambda: self.connection.execute("COMMIT"))

    def roll_back(self) -> None:
        """Drop what was added."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def absent(self) -> list[str]:
        """Digests of missing evidence."""
        return [sha256 for (sha256,) in self.connection.execute("SELECT sha256 FROM absent")]

    def doomed(self) -> list[str]:
        """Digests of evidence that still existed, although an entry says that it was withheld."""
        return [sha256 for (sha256,) in self.connection.execute("SELECT sha256 FROM doomed")]

    def problems(self) -> list[str]:
        """What could not be read."""
        rows = self.connection.execute("SELECT sentence FROM problems ORDER BY seq")
        return [sentence for (sentence,) in rows]

    def load_row(self, number: int) -> Row:
        """The row of that number.

        Raises:
            sqlite3.DatabaseError: the index is damaged.
        """
        query = "SELECT first, data FROM blocks WHERE first <= ? ORDER BY first DESC LIMIT 1"
        try:
            first, data = self.connection.execute(query, (number,)).fetchone()
            return unpack_rows(data)[number - int(first)]
        except (ValueError, TypeError, IndexError) as error:
            raise sqlite3.DatabaseError(f"row {number} cannot be read") from error


def is_of(connection: sqlite3.Connection, origin: str) -> bool:
    """Whether a database is the search index of the log with this origin, of this version."""
    if list_schema(connection) != expect_schema(_create_tables):
        return False
    found = connection.execute("SELECT version, origin FROM position").fetchall()
    return found == [(VERSION, origin)]


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.strip().split(";\n"):
        connection.execute(statement)


def waiting[T](act: Callable[[], T]) -> T:
    """Call `act`, waiting while another process writes to the index.

    There is no time limit: a lock disappears with the process that holds it.
    """
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
