"""Starts a process that updates the search index of a ledger, after much was sealed.

The process (`proctor search --update`) has the lowest priority, and one ledger has one at a time.
It commits in batches: if it is killed, the next update continues where it stopped. A search that
comes meanwhile helps it, and waits.
"""

import contextlib
import os
import sqlite3
import sys
from pathlib import Path

from proctor.errors import LedgerError
from proctor.ledger.derived import SEARCH_INDEX, find_folder
from proctor.ledger.place import open_reader

MUCH = 500
"""Entries that are left to the next search: it indexes them in about a second."""


def update_in_background(directory: Path, *, much: int = MUCH) -> int | None:
    """Start a process that updates the index if more than `much` entries are not in it.

    Returns the id of the process, which nobody waits for; None if none was started. That is no
    error: the next search updates the index.
    """
    with contextlib.suppress(LedgerError, OSError):
        folder = find_folder(directory)
        with open_reader(directory) as ledger:
            size = ledger.checkpoint().tree.size
        if folder is not None and size - _count_indexed(folder / SEARCH_INDEX) > much:
            return _start_update(directory)
    return None


def _start_update(directory: Path) -> int:
    # -P: no module is imported from the working directory.
    words = [sys.executable, "-P", "-m", "proctor", "search", "--update"]
    words += ["--ledger", str(directory.absolute())]
    null = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)),
    ]
    # A session of its own: closing the terminal does not end it.
    return os.posix_spawn(sys.executable, words, os.environ, file_actions=null, setsid=True)


def _count_indexed(path: Path) -> int:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        ) as connection:
            ((size,),) = connection.execute("SELECT size FROM position").fetchall()
            return int(size)
    except (sqlite3.Error, ValueError, TypeError):
        return 0
