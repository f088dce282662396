"""Compares the index with the log, and recovers from it what the log was.

The index is derived: if it differs from the log it is rebuilt, which is not damage. But if its leaf
hashes give a signed root, they show what every entry was before the log was changed.
"""

import contextlib
import os
import sqlite3
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from proctor.errors import DamageError, LedgerError
from proctor.ledger.derived import remove_database
from proctor.ledger.index import Index
from proctor.ledger.index_file import has_schema, is_of
from proctor.ledger.log import LogStore
from proctor.ledger.note import Checkpoint
from proctor.ledger.tree import Tree
from proctor.ledger.trial_index import Position
from proctor.ledger.upkeep import catch_up
from proctor.ledger.verification.columns import find_wrong_rows, open_read_only
from proctor.ledger.verification.compare import Log
from proctor.ledger.verification.found import FoundLog
from proctor.ledger.verification.leaves import Leaves

_BATCH = 4096


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
        connection = open_read_only(path)
        if connection is None:
            return None
        try:
            if has_schema(connection) and (origin is None or is_of(connection, origin)):
                index = Index(connection, path)
                return cls(index, index.position())
        except (sqlite3.Error, TypeError, ValueError):
            pass
        connection.close()
        return None

    def close(self) -> None:
        """Close the file."""
        self.index.close()

    def log(self, found: FoundLog, tree: Tree) -> Log[bytes] | None:
        """The log that had a signed tree, if the index has it; else None."""
        leaves, lengths = self._leaves(tree.size)
        known = len(leaves)
        if known == tree.size:
            return Log(leaves, lengths) if leaves.gives(tree.size, tree.root) else None
        # The last entries, which are not indexed yet, may be unchanged in the present log.
        rest = tree.size - known
        for begin in {known, len(found) - rest}:
            if begin < 0 or begin + rest > len(found):
                continue
            whole = Leaves(leaves.packed(0, known))
            whole.extend(found.leaves.packed(begin, begin + rest))
            if whole.gives(tree.size, tree.root):
                return Log(whole, [*lengths, *found.lengths[begin : begin + rest]])
        return None

    def first_leaf(self, tree: Tree) -> bytes | None:
        """The leaf hash of the first entry, if the index has all of a tree."""
        leaves, _ = self._leaves(tree.size)
        return leaves[0] if tree.size and leaves.gives(tree.size, tree.root) else None

    def _leaves(self, size: int) -> tuple[Leaves, array[int]]:
        leaves, lengths = Leaves(), array("Q")
        try:
            rows = self.index.connection.execute(
                "SELECT leaf, length FROM entries WHERE seq < ? ORDER BY seq", (size,)
            )
            while some := rows.fetchmany(_BATCH):
                leaves.extend(b"".join(leaf for leaf, _ in some))
                lengths.extend(length for _, length in some)
        except (sqlite3.Error, TypeError, ValueError, OverflowError):
            return Leaves(), array("Q")
        return leaves, lengths

    def is_ahead(self, found: FoundLog, size: int) -> bool:
        """Whether it has read more entries than are signed, and the log still has all of them."""
        frontier = self.position.frontier
        return frontier.size > size and found.leaves.gives(frontier.size, frontier.root())

    def find_problem(self, found: FoundLog, size: int) -> str | None:
        """Why it does not match an undamaged log of this size; None if it does."""
        frontier, place = self.position.frontier, self.position.place
        if frontier.size > size:
            return f"it has {frontier.size} entries, the log {size}"
        if not found.leaves.gives(frontier.size, frontier.root()):
            return "it was made from another log"
        key = ""
        for line, entry in found.keys:
            key = entry.key if line < frontier.size else key
        if (place, self.position.key) != (found.end_of(frontier.size), key):
            return "its position is wrong"
        try:
            return self._find_wrong_rows(found, frontier.size)
        except (sqlite3.Error, LedgerError, ValueError):
            return "it cannot be read"

    def _find_wrong_rows(self, found: FoundLog, size: int) -> str | None:
        ((last,),) = self.index.select("SELECT max(seq) FROM entries")
        if (-1 if last is None else last) != size - 1:
            return "its entries end before its position"
        if not self._has_hashes(found.leaves, size):
            return "its hashes are not those of the log's tree"
        withholding = [entry for line, entry in found.withholdings if line < size]
        return find_wrong_rows(self.index.connection, size, withholding)

    def _has_hashes(self, leaves: Leaves, size: int) -> bool:
        """Whether the hashes above the leaves are right, and no others are there."""
        level = 0
        for level, expected in enumerate(leaves.levels(size), start=1):
            # Asks for one more than there should be.
            if self.index.hashes(level, 0, len(expected) + 1) != expected:
                return False
        ((highest,),) = self.index.select("SELECT max(level) FROM hashes")
        return (highest or 0) == level


def repair_index(path: Path, log: LogStore, own: Checkpoint) -> str | None:
    """Rebuild the index from an undamaged log; returns a message if that fails."""
    try:
        remove_database(path)
        with contextlib.closing(Index.open(path, own.origin)) as index:
            catch_up(index, log, own.tree)
    except (sqlite3.Error, LedgerError, DamageError, OSError) as error:
        return str(error)
    return None
