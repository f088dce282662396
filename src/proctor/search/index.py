"""search.sqlite: an FTS5 index of rows, and their packed texts for snippets.

    position   which log was read, up to which entry, and the frontier of its tree there
    rows       FTS5 without content: the words and the tags of a row, by its number
    blocks     consecutive rows, compressed, by the number of the first
    read       the entries that were read, and how many rows each has
    seen       evidence and lines, and whether they were there when their entry was read
    problems   messages about what could not be read

A row's number is the index of its entry in the log, then its index among the rows of the entry: the
newest rows have the highest numbers, and a trial's rows are together. There is no write-ahead log:
SQLite would create its file again next to an index that was removed because of a secret.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import msgspec
from backports import zstd

from proctor.errors import LedgerError
from proctor.ledger.derived import expect_schema, list_schema, remove_index
from proctor.ledger.tree import HASH_SIZE, Frontier
from proctor.search.query import FAILED, sign_tags, tag
from proctor.search.row import Row

VERSION = 5
"""Version of the tables and their contents; an index of another version is built again."""
ROW_BITS = 32
"""Bits of a row's number that count rows within an entry."""
TOKENIZER = "tokenize='unicode61 remove_diacritics 2'"
_TABLES = """
CREATE TABLE position (
    version INTEGER NOT NULL, size INTEGER NOT NULL, peaks BLOB NOT NULL, origin TEXT NOT NULL
);
CREATE TABLE blocks (first INTEGER PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE read (seq INTEGER PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE seen (what TEXT PRIMARY KEY, there INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE problems (seq INTEGER NOT NULL, sentence TEXT NOT NULL);
CREATE VIRTUAL TABLE rows USING fts5(body, tags, content='', TOKENIZER);
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
# The unit of compression: large enough to compress well, small enough to unpack for one hit.
_BLOCK_CHARACTERS = 1 << 16
_BLOCK_ROWS = 200
_PACK = msgspec.msgpack.Encoder().encode
_UNPACK = msgspec.msgpack.Decoder(list[Row]).decode


class MovedError(Exception):
    """Another process changed or removed the index: start over."""


class SearchIndex:
    """An open index. The caller closes it."""

    def __init__(self, path: Path | None, origin: str) -> None:
        self.path = path
        self.origin = origin
        """The origin of the log it was built from."""
        self._inode = path.stat().st_ino if path else 0
        self.connection = sqlite3.connect(
            path or ":memory:", isolation_level=None, timeout=_WAIT_SECONDS
        )

    @classmethod
    def open(cls, path: Path, origin: str) -> Self:
        """Open the index in a file; build it if it is missing, damaged, of another log or version.

        Raises:
            LedgerError: the file cannot be opened or written.
        """
        try:
            for _ in range(_TRIES):
                if found := cls._open_once(path, origin):
                    return found
                remove_index(path)
        except (sqlite3.OperationalError, OSError) as error:
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
        found = cls(path, origin)
        try:
            if found._prepare() and found._is_there():
                return found
        except sqlite3.OperationalError:
            found.close()
            raise
        except sqlite3.DatabaseError:
            pass
        found.close()
        return None

    @classmethod
    def in_memory(cls) -> Self:
        """An index for one command, where no file can be written."""
        found = cls(None, "")
        found._prepare()
        return found

    def _prepare(self) -> bool:
        """Create missing tables; return whether this is an index of this log."""
        for setting in _SETTINGS:
            self.execute(f"PRAGMA {setting}")
        if not self._has_tables():
            self.execute("BEGIN IMMEDIATE")
            # Another process may have created them while this one waited.
            if not self._has_tables():
                _create_tables(self.connection)
                self.execute("INSERT INTO position VALUES (?, 0, x'', ?)", VERSION, self.origin)
            self.execute("COMMIT")
        return self.is_of(self.origin)

    def _has_tables(self) -> bool:
        return self.execute("SELECT 1 FROM sqlite_master").fetchone() is not None

    def is_of(self, origin: str) -> bool:
        """Whether this is an index of this version, of the log with this origin."""
        if list_schema(self.connection) != expect_schema(_create_tables):
            return False
        found = self.execute("SELECT version, origin FROM position").fetchall()
        return found == [(VERSION, origin)]

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        """Execute a statement, waiting while another process writes to the index.

        There is no time limit: a lock disappears with the process that holds it.
        """
        while True:
            try:
                return self.connection.execute(statement, values)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise

    def close(self) -> None:
        """Close the file; what was not committed is dropped."""
        self.connection.close()

    def position(self) -> Frontier:
        """How far it has read, as the frontier of the log's tree there."""
        size, peaks = self.execute("SELECT size, peaks FROM position").fetchone()
        hashes = [peaks[at : at + HASH_SIZE] for at in range(0, len(peaks), HASH_SIZE)]
        return Frontier(size, hashes)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read one state of it; a concurrent writer waits."""
        self.execute("BEGIN")
        self.position()
        try:
            yield
        finally:
            self.execute("ROLLBACK")

    def begin(self, after: int) -> None:
        """Become the only writer of an index that has read `after` entries.

        Raises:
            MovedError: it was removed, or another process has written to it.
        """
        self.execute("BEGIN IMMEDIATE")
        if not self._is_there() or self.position().size != after:
            self.execute("ROLLBACK")
            raise MovedError

    def _is_there(self) -> bool:
        try:
            return self.path is None or self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def add(self, seq: int, rows: Iterable[Row]) -> None:
        """Add the rows of an entry, between `begin` and `commit`."""
        first = number = seq << ROW_BITS
        for block in _in_blocks(rows):
            self.connection.executemany(
                "INSERT INTO rows (rowid, body, tags) VALUES (?, ?, ?)",
                ((at, row.text, tags_of(row)) for at, row in enumerate(block, number)),
            )
            packed = zstd.compress(_PACK(block), 1)
            self.execute("INSERT INTO blocks VALUES (?, ?)", number, packed)
            number += len(block)
        self.execute("INSERT INTO read VALUES (?, ?)", seq, number - first)

    def note(self, what: str, *, is_there: bool) -> None:
        """Remember whether evidence, or a line, was there; between `begin` and `commit`."""
        self.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", what, is_there)

    def commit(self, frontier: Frontier) -> None:
        """Store what was added, and how far the log was read for it."""
        peaks = b"".join(frontier.peaks)
        self.execute("UPDATE position SET size = ?, peaks = ?", frontier.size, peaks)
        self.execute("COMMIT")

    def problems(self) -> list[str]:
        """What could not be read."""
        return [said for (said,) in self.execute("SELECT sentence FROM problems ORDER BY seq")]

    def load_row(self, number: int) -> Row:
        """The row of that number.

        Raises:
            sqlite3.DatabaseError: the index is damaged.
        """
        query = "SELECT first, data FROM blocks WHERE first <= ? ORDER BY first DESC LIMIT 1"
        try:
            first, data = self.execute(query, number).fetchone()
            return _UNPACK(zstd.decompress(data))[number - int(first)]
        except (zstd.ZstdError, ValueError, TypeError, IndexError) as error:
            raise sqlite3.DatabaseError(f"row {number} cannot be read") from error


def tags_of(row: Row) -> str:
    """The tags of a row, as the index stores them."""
    tags = [tag("role", row.role), *sign_tags(row.text)]
    if row.tool:
        tags.append(tag("tool", row.tool))
    if row.exit_code is not None:
        tags += [tag("exit", row.exit_code), *([FAILED] if row.exit_code else [])]
    return " ".join(tags)


def _in_blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    block, held = list[Row](), 0
    for row in rows:
        block.append(row)
        held += len(row.text)
        if held >= _BLOCK_CHARACTERS or len(block) >= _BLOCK_ROWS:
            yield block
            block, held = [], 0
    if block:
        yield block


def _create_tables(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.replace("TOKENIZER", TOKENIZER).strip().split(";\n"):
        connection.execute(statement)
