"""Compares the index with the log, and recovers from it what the log was.

The index is derived: it is compared with another that is derived anew, and replaced if it differs,
which is not damage. But if its leaf hashes give a signed root, they show what every entry was
before the log was changed.
"""

import contextlib
import os
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from proctor.errors import DamageError, LedgerError
from proctor.ledger.derived import remove_database
from proctor.ledger.index import Index, is_of
from proctor.ledger.log import LogStore
from proctor.ledger.note import Checkpoint
from proctor.ledger.row import COLUMNS, DOCUMENTS
from proctor.ledger.tree import Tree
from proctor.ledger.trial_index import Position
from proctor.ledger.upkeep import catch_up
from proctor.ledger.verification.leaves import Leaves
from proctor.ledger.verification.scan import ScannedLog

_BATCH = 4096
# Conditions are numbered in the order in which they were read, which withholding changes.
_LOAD = "(SELECT document FROM {0}.conditions WHERE id = {1})"
_TRIALS = ", ".join(
    _LOAD.format("{0}", name) if number in DOCUMENTS else name
    for number, name in enumerate(COLUMNS)
)
_TABLES = {
    "position": "size, segment, offset, peaks, key",
    "entries": "seq, kind, at, segment, offset, length, leaf",
    "hashes": "level, number, hash",
    "trials": _TRIALS,
    "remarks": "record, seq, kind, verdict, is_subject",
    "withholdings": "seq, entry",
    "evidence": "key, seq",
}
_STRAY = "SELECT seq FROM old.evidence EXCEPT SELECT seq FROM main.entries"


@dataclass(frozen=True, slots=True)
class IndexReader:
    """An index that can be read."""

    index: Index
    position: Position

    @classmethod
    def open(cls, path: Path, origin: str | None) -> Self | None:
        """Open the index in a file read-only; None if it is not the index of this log.

        Raises:
            FileNotFoundError: there is no such file.
        """
        if not os.path.lexists(path):
            raise FileNotFoundError(path)
        if path.is_symlink() or not path.is_file():
            return None
        try:
            uri = f"{path.as_uri()}?mode=ro"
            connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=60)
        except sqlite3.Error:
            return None
        try:
            found = connection.execute("SELECT origin FROM position").fetchone()
            if is_of(connection, found[0] if origin is None else origin):
                index = Index(connection, path)
                return cls(index, index.position())
        except (sqlite3.Error, TypeError, ValueError):
            pass
        connection.close()
        return None

    def close(self) -> None:
        """Close the file."""
        self.index.close()

    def recall(self, log: ScannedLog, tree: Tree) -> Leaves | None:
        """The leaf hashes of a signed tree, if the index has them; else None."""
        leaves = self._read_leaves(tree.size)
        # The last entries, which are not indexed yet, may be unchanged in the present log.
        leaves.extend(log.leaves.packed(len(leaves), tree.size))
        return leaves if leaves.gives(tree.size, tree.root) else None

    def first_leaf(self, tree: Tree) -> bytes | None:
        """The leaf hash of the first entry, if the index has all of a tree."""
        leaves = self._read_leaves(tree.size)
        return leaves[0] if tree.size and leaves.gives(tree.size, tree.root) else None

    def _read_leaves(self, size: int) -> Leaves:
        leaves = Leaves()
        try:
            rows = self.index.connection.execute(
                "SELECT leaf FROM entries WHERE seq < ? ORDER BY seq", (size,)
            )
            while some := rows.fetchmany(_BATCH):
                leaves.extend(b"".join(leaf for (leaf,) in some))
        except (sqlite3.Error, TypeError, ValueError, OverflowError):
            return Leaves()
        return leaves

    def is_ahead(self, log: ScannedLog, size: int) -> bool:
        """Whether it has read more entries than are signed, and the log still has all of them."""
        frontier = self.position.frontier
        return frontier.size > size and log.leaves.gives(frontier.size, frontier.root())

    def find_problem(self, log: LogStore, found: ScannedLog, own: Checkpoint) -> str | None:
        """Why it does not match an undamaged log; None if it does."""
        frontier, size = self.position.frontier, own.tree.size
        if frontier.size > size:
            return f"it has {frontier.size} entries, the log {size}"
        if not found.leaves.gives(frontier.size, frontier.root()):
            return "it was made from another log"
        try:
            with contextlib.ExitStack() as stack:
                scratch = stack.enter_context(tempfile.TemporaryDirectory())
                anew = Index.open(Path(scratch, "anew"), own.origin)
                stack.callback(anew.close)
                catch_up(anew, log, Tree(frontier.size, frontier.root()))
                return self._find_difference(anew.connection)
        except (sqlite3.Error, LedgerError, DamageError, OSError):
            return "it cannot be read"

    def _find_difference(self, anew: sqlite3.Connection) -> str | None:
        anew.execute("ATTACH ? AS old", (str(self.index.path),))
        for table, columns in _TABLES.items():
            old, new = (_select(schema, table, columns) for schema in ("old", "main"))
            queries = [f"{new} EXCEPT {old}", f"{old} EXCEPT {new}"]
            if table == "evidence":
                # More evidence of an entry is harmless: it was withheld, or nobody names it.
                queries[1] = _STRAY
            if any(anew.execute(query).fetchone() for query in queries):
                return f"its table {table} differs from one made anew"
        return None


def _select(schema: str, table: str, columns: str) -> str:
    # Numbered, because the same row twice is a difference too.
    number = f"row_number() OVER (PARTITION BY {columns})".format(schema)
    return f"SELECT {columns.format(schema)}, {number} FROM {schema}.{table}"  # noqa: S608


def repair_index(path: Path, log: LogStore, own: Checkpoint) -> str | None:
    """Rebuild the index from an undamaged log; returns a message if that fails."""
    try:
        remove_database(path)
        with contextlib.closing(Index.open(path, own.origin)) as index:
            catch_up(index, log, own.tree)
    except (sqlite3.Error, LedgerError, DamageError, OSError) as error:
        return str(error)
    return None
