"""Where the indexes of a ledger are stored: in the user's cache, never in the ledger.

    <cache>/ledgers/<SHA-256 of the ledger's real path>/
      ledger            that path
      lock              held while index.sqlite is opened
      index.sqlite      for lists and boards: see index.py
      search.sqlite     for search: see proctor.search
      search.lock       held while search.sqlite is updated in the background

A ledger may come from a stranger, and so would an index inside it. Therefore indexes are built from
the log on this machine, in directories that only this user can write to: in the cache, else in a
private temporary directory, else nowhere (None).
"""

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.files import read_head, write_small
from proctor.filesystems import find_network, find_stranger

INDEX = "index.sqlite"
SEARCH_INDEX = "search.sqlite"
# The suffixes of a database and of the files that SQLite puts beside it.
_BESIDE = ("", "-wal", "-shm", "-journal")
_FOLDERS = "ledgers"
_NOTE = "ledger"
_LONGEST_PATH = 1 << 16
_PATIENCE_SECONDS = 600
_WAIT_SECONDS = 5


def find_cache(environ: Mapping[str, str]) -> Path | None:
    """The user's cache; None if there is none, or if another user can write to it."""
    shared, home = environ.get("XDG_CACHE_HOME", ""), environ.get("HOME", "")
    if chosen := environ.get("PROCTOR_CACHE"):
        place = Path(chosen).absolute()
    elif shared.startswith("/"):
        place = Path(shared, "proctor")
    elif home.startswith("/"):
        place = Path(home, ".cache", "proctor")
    else:
        return None
    try:
        is_ours = place.stat().st_uid == os.geteuid()
    except OSError:
        return place
    return place if is_ours and find_stranger(place) is None else None


def find_folder(ledger: Path) -> Path | None:
    """The directory for a ledger's indexes, created if missing; None if there can be none."""
    # By real path, so that links to one ledger share an index.
    real = os.path.realpath(ledger)
    for root in _find_roots():
        with contextlib.suppress(OSError):
            return _make_folder(root, real)
    return None


def _find_roots() -> Iterator[Path]:
    """Directories that may contain indexes; the first writable one is used."""
    place = find_cache(os.environ)
    with contextlib.suppress(OSError):
        if place is not None:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite's locks and shared memory do not work across machines.
            if find_network(place) is None:
                yield place / _FOLDERS
    with contextlib.suppress(OSError):
        shared = Path(tempfile.gettempdir())
        status = shared.stat()
        is_open = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a world-writable directory, only the sticky bit protects our files.
        is_safe = not is_open or status.st_mode & stat.S_ISVTX
        if is_safe and find_network(shared) is None:
            yield shared / f"proctor-indexes-{os.geteuid()}"


def _make_folder(root: Path, ledger: str) -> Path:
    folder = root / sha256_hex(os.fsencode(ledger))
    for each in (root, folder):
        _make_private(each)
    with contextlib.suppress(FileExistsError):
        write_small(str(folder / _NOTE), os.fsencode(ledger), is_new=True)
    return folder


def _make_private(directory: Path) -> None:
    """Create a directory that only this user can access, or check that it is one."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    # Checked after creating it: in a shared directory another user may have been faster.
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise OSError(f"{directory}: not a directory of this user")
    if stat.S_IMODE(status.st_mode) & 0o077:
        directory.chmod(0o700)
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        raise OSError(f"{directory}: cannot be written")


def remove_unused(*, dry_run: bool = False) -> list[Path]:
    """Remove the indexes of deleted ledgers; returns the paths of these ledgers."""
    gone: list[Path] = []
    for root in _find_roots():
        with contextlib.suppress(OSError):
            for folder in sorted(root.iterdir()):
                if (ledger := _find_ledger(folder)) and not os.path.lexists(ledger):
                    gone.append(ledger)
                    if not dry_run:
                        shutil.rmtree(folder)
    return gone


def _find_ledger(folder: Path) -> Path | None:
    """The ledger that a directory belongs to, or None."""
    try:
        path = read_head(str(folder / _NOTE), _LONGEST_PATH)
    except OSError:
        return None
    # The directory is deleted with its ledger: trust the path only if its digest matches.
    is_of_it = sha256_hex(path) == folder.name and not folder.is_symlink()
    return Path(os.fsdecode(path)) if is_of_it else None


def remove_database(path: Path) -> None:
    """Remove a database and the files that SQLite puts beside it."""
    for end in _BESIDE:
        path.with_name(f"{path.name}{end}").unlink(missing_ok=True)


def remove_index(path: Path) -> None:
    """Remove an index that other processes may be writing to; none of them writes to it afterwards.

    A writer of such an index checks, once it holds the lock, that its file still has the name.
    """
    if path.is_symlink() or not path.is_file():
        # A journal contains pages of its index, even if the index is missing.
        remove_database(path)
        return
    connection = sqlite3.connect(path, isolation_level=None, timeout=_WAIT_SECONDS)
    try:
        # Files that are no database, or cannot be locked, are removed too.
        with contextlib.suppress(sqlite3.Error):
            _lock(connection)
        remove_database(path)
    finally:
        connection.close()


def _lock(connection: sqlite3.Connection) -> None:
    """Wait for the present writer, which commits in batches."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        else:
            return


def list_schema(connection: sqlite3.Connection) -> frozenset[tuple[str, str, str, str | None]]:
    """All tables, indexes, triggers and views of a database."""
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    return frozenset(connection.execute(query))


@cache
def expect_schema(create: Callable[[sqlite3.Connection], None]) -> frozenset[object]:
    """The schema of a newly created database."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        create(connection)
        return frozenset(list_schema(connection))
    finally:
        connection.close()
