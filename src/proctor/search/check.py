"""Compares the search index with the log: a wrong index would silently give wrong answers.

The words of rows are not compared: that would take as long as building the index again.
"""

import contextlib
import sqlite3
from pathlib import Path

from proctor.errors import LedgerError
from proctor.ledger.derived import SEARCH_INDEX, remove_index
from proctor.ledger.place import open_reader
from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tiles import TiledTree
from proctor.search.index import ROW_BITS, SearchIndex, is_of, waiting
from proctor.search.upkeep import KINDS_WITH_TEXT

_ROWS = "SELECT id >> ?, count(*) FROM rows_docsize GROUP BY 1 ORDER BY 1"
_READ = "SELECT seq, number FROM read WHERE number > 0 ORDER BY seq"
# Reported to nobody: the ledger was removed, and another was created in its place.
_REPLACED = "it is of another log"


def check_search_index(directory: Path) -> str | None:
    """Delete the search index of a valid ledger if it is wrong, and return what was wrong.

    Raises:
        LedgerError: it is wrong, and cannot be deleted.
        DamageError: the log does not match its checkpoint.
    """
    with open_reader(directory) as ledger:
        path = ledger.index.path and ledger.index.path.with_name(SEARCH_INDEX)
        if path is None or not path.exists():
            return None
        problem = _find_problem(ledger, path)
    if problem is None:
        return None
    try:
        remove_index(path)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be removed: {error}") from error
    if problem is _REPLACED:
        return None
    return f"{path} did not match the log ({problem}); the next search builds it again"


def _find_problem(ledger: LedgerReader, path: Path) -> str | None:
    if path.is_symlink() or not path.is_file():
        return "it is not a regular file"
    connection = sqlite3.connect(path, isolation_level=None)
    with contextlib.closing(SearchIndex(connection, path, 0, ledger.checkpoint().origin)) as index:
        try:
            if not waiting(lambda: is_of(connection, index.origin)):
                if connection.execute("SELECT origin FROM position").fetchall() != [
                    (index.origin,)
                ]:
                    return _REPLACED
                return "another version of proctor made it"
            with index.reading():
                problem = _compare(ledger, index)
            # FTS5 checks its own word lists.
            check = "INSERT INTO rows (rows) VALUES ('integrity-check')"
            waiting(lambda: connection.execute(check))
        except (sqlite3.DatabaseError, ValueError, TypeError) as error:
            return str(error)
        return problem


def _compare(ledger: LedgerReader, index: SearchIndex) -> str | None:
    position, select = index.position(), index.connection.execute
    with snapshot(ledger) as size:
        root = TiledTree(ledger.index, min(position.size, size)).root()
        expected = sorted(
            (seq,)
            for kind in KINDS_WITH_TEXT
            for seq in ledger.index.places(kind, size=position.size)
        )
    if position.size > size or root != position.root():
        return "it was made from another log"
    if select("SELECT seq FROM read ORDER BY seq").fetchall() != expected:
        return "it has read entries that the log does not have"
    numbers = select(_READ).fetchall()
    if select(_ROWS, (ROW_BITS,)).fetchall() != numbers:
        return "rows that it has read are missing"
    blocks = select("SELECT DISTINCT first >> ? FROM blocks ORDER BY 1", (ROW_BITS,)).fetchall()
    return None if blocks == [(seq,) for seq, _ in numbers] else "texts of its rows are missing"
