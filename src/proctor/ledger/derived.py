"""Files beside the log that are made from it, and that hold what its evidence says.

What is taken out of a ledger has to leave them too. The simplest way that leaves no byte behind is
to remove the file: whoever needs it makes it again, from what is left.
"""

import contextlib
import sqlite3
import time
from pathlib import Path

SEARCH_INDEX = "search.sqlite"
"""Name of the index over texts, in the directory of its ledger."""
_PATIENCE_SECONDS = 600
_WAIT_SECONDS = 5


def remove_search_index(directory: Path) -> None:
    """Take the index over texts out of a ledger.

    Raises:
        OSError: it cannot be removed.
    """
    remove_index(directory / SEARCH_INDEX)


def remove_index(path: Path) -> None:
    """Remove an index that others may be writing: none of them writes to it afterwards.

    Who writes to such an index looks, once it holds the lock, whether its file is still the one of
    that name.

    Raises:
        OSError: it cannot be removed.
    """
    journal = path.with_name(f"{path.name}-journal")
    if path.is_symlink() or not path.is_file():
        # A journal without its index holds pages of it all the same.
        path.unlink(missing_ok=True)
        journal.unlink(missing_ok=True)
        return
    connection = sqlite3.connect(path, isolation_level=None, timeout=_WAIT_SECONDS)
    try:
        # What is no index, or cannot be locked, is removed all the same.
        with contextlib.suppress(sqlite3.Error):
            _lock(connection)
        for each in (journal, path):
            each.unlink(missing_ok=True)
    finally:
        connection.close()


def _lock(connection: sqlite3.Connection) -> None:
    """Wait for whoever is writing; they are done with one batch soon."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        else:
            return
