"""Updates the index from the log, from where it is, or from the start if it does not match.

It is rebuilt if it was made from another log, or from this one before it was rewritten; if
something was withheld since, so that none of it stays in the index; and if missing evidence has
returned. Entries are added in batches: a process that is killed loses one batch.

After much was sealed, a process of the lowest priority (`proctor search --update`) does it, one for
a ledger at a time. A search that comes meanwhile helps it, and waits.
"""

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import DamageError, InputError, LedgerError
from proctor.files import try_lock
from proctor.ledger.derived import SEARCH_INDEX, find_folder, remove_index
from proctor.ledger.entry import WithholdEntry, decode_line
from proctor.ledger.log import read_line
from proctor.ledger.place import open_reader
from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tiles import TiledTree
from proctor.ledger.tree import Frontier
from proctor.ledger.trial_index import IndexedEntry, TrialFilter
from proctor.ledger.upkeep import check_leaf
from proctor.search.index import ROW_BITS, MovedError, SearchIndex
from proctor.search.row import Row
from proctor.search.texts import Passed, rows_of

MUCH = 500
"""Entries that are left to the next search: it indexes them in about a second."""
_BATCH_BYTES = 64 << 20
_BATCH_ENTRIES = 2000
_TRIES = 100
# Pause between batches: a process that waits for the lock to withhold something polls it.
_PAUSE_SECONDS = 0.12
_KINDS_WITH_TEXT = ("trial", "review", "note")
_LOWEST_PRIORITY = 19
# Prefix of a line's position, where the index remembers what was there.
_LINE = "entry "

type Watch = Callable[[int, int], None]
"""Called with the bytes of evidence read so far, and their total."""


def watch_nothing(_done: int, _total: int) -> None:
    """Ignore progress."""


def ask_index[T](
    ledger: LedgerReader,
    ask: Callable[[SearchIndex], T],
    watch: Watch = watch_nothing,
    *,
    is_now: bool = False,
) -> T:
    """Bring the index of a ledger up to date, then query it.

    A damaged index is rebuilt. With `is_now`, it is queried as far as it has read; one that does
    not match the ledger is deleted first.

    Raises:
        LedgerError: the index cannot be written.
        DamageError: the log does not match its checkpoint.
    """
    path = ledger.index.path and ledger.index.path.with_name(SEARCH_INDEX)
    is_rebuilt = False
    while True:
        try:
            index = _bring_up(ledger, path, watch, is_now=is_now)
            with contextlib.closing(index), index.reading():
                return ask(index)
        except sqlite3.DatabaseError as error:
            if is_rebuilt or isinstance(error, sqlite3.OperationalError):
                raise LedgerError(_render_failure(path, error)) from error
            _remove(path)
            is_rebuilt = True


def _bring_up(
    ledger: LedgerReader, path: Path | None, watch: Watch, *, is_now: bool
) -> SearchIndex:
    """The index of a ledger, up to date; with `is_now`, as far as it has read."""
    for _ in range(_TRIES):
        origin = ledger.checkpoint().origin
        index = SearchIndex.in_memory() if path is None else SearchIndex.open(path, origin)
        try:
            ahead = _look_ahead(ledger, index)
            if ahead is not None and not is_now:
                _read_on(ledger, index, ahead, watch)
            if ahead is not None:
                return index
        except MovedError:
            # Another process wrote to it, or removed it because of a secret.
            index.close()
            continue
        except BaseException:
            index.close()
            raise
        index.close()
        _remove(path)
    raise LedgerError(f"{ledger.where}: other processes keep writing to it; try again")


def _remove(path: Path | None) -> None:
    try:
        if path is not None:
            remove_index(path)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be removed: {error}") from error


def _render_failure(path: Path | None, error: sqlite3.Error) -> str:
    if "full" in str(error) or "disk I/O" in str(error):
        where = path.parent if path is not None else "memory"
        return f"{where}: no room for the search index ({error}); free some space and search again"
    return f"{path}: the index cannot be used: {error}; delete it and search again"


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What the index has not read yet."""

    frontier: Frontier
    """The position of the index."""
    entries: list[IndexedEntry]
    sizes: dict[int, int]
    """Bytes of evidence of trials, by position."""
    doomed: list[str]
    """Evidence that was withheld according to entries but still exists: about to be removed."""


def _look_ahead(ledger: LedgerReader, index: SearchIndex) -> _Ahead | None:
    """What is still to be read; None if the index does not match and must be built again."""
    frontier = index.position()
    with snapshot(ledger) as size:
        tree = ledger.checkpoint().tree
        entries = ledger.index.entries(frontier.size, size)
        wanted = TrialFilter(from_seq=frontier.size)
        trials = ledger.index.trials(wanted, size=size) if entries else ()
        sizes = {row.seq: row.evidence_bytes for row in trials}
    withholdings = [entry.seq for entry in entries if entry.kind == "withhold"]
    if frontier.size:
        reached = frontier.copy()
        reached.extend(entry.leaf for entry in entries)
        fits = tree.size != reached.size or reached.root() == tree.root
        if frontier.size > size or not fits or withholdings:
            return None
        seen = index.execute("SELECT what, there FROM seen").fetchall()
        if any(_is_there(ledger, what) != was_there for what, was_there in seen):
            return None
    named: set[str] = set()
    for entry in map(ledger.entry, withholdings):
        if isinstance(entry, WithholdEntry):
            named |= {*entry.artifacts, *([] if entry.entry is None else [f"{_LINE}{entry.entry}"])}
    doomed = sorted(what for what in named if _is_there(ledger, what))
    return _Ahead(frontier, entries, sizes, doomed)


def _is_there(ledger: LedgerReader, what: str) -> bool:
    """Whether evidence, or a line, exists now."""
    if not what.startswith(_LINE):
        return ledger.artifacts.holds(what)
    entry = ledger.index.entry(int(what.removeprefix(_LINE)))
    return entry is not None and entry.kind != ""


def _read_on(ledger: LedgerReader, index: SearchIndex, ahead: _Ahead, watch: Watch) -> None:
    """Add entries in batches; what was not committed is dropped when the index is closed."""
    if not ahead.entries:
        return
    frontier, total = ahead.frontier.copy(), sum(ahead.sizes.values())
    done = kept = 0
    # Evidence may be withheld while this process waits: nothing is read before it has the lock.
    index.begin(after=frontier.size)
    kept_size = frontier.size
    for what in ahead.doomed:
        index.note(what, is_there=True)
    for entry in ahead.entries:
        if done - kept >= _BATCH_BYTES or frontier.size - kept_size >= _BATCH_ENTRIES:
            index.commit(frontier)
            time.sleep(_PAUSE_SECONDS)
            index.begin(after=frontier.size)
            kept, kept_size = done, frontier.size
        _read_entry(ledger, index, entry)
        frontier.append(entry.leaf)
        done += ahead.sizes.get(entry.seq, 0)
        watch(min(done, total - 1), total)
    index.commit(frontier)
    watch(total, total)


def _read_entry(ledger: LedgerReader, index: SearchIndex, entry: IndexedEntry) -> None:
    if not entry.kind:
        index.note(f"{_LINE}{entry.seq}", is_there=False)
    if entry.kind not in _KINDS_WITH_TEXT:
        return
    passed = Passed()
    index.add(entry.seq, _rows_at(ledger, entry, passed))
    for sha256 in passed.absent:
        index.note(sha256, is_there=False)
    for sentence in passed.problems:
        index.execute("INSERT INTO problems VALUES (?, ?)", entry.seq, sentence)


def _rows_at(ledger: LedgerReader, entry: IndexedEntry, passed: Passed) -> Iterator[Row]:
    where = f"{ledger.log.where}: entry {entry.seq}"
    try:
        line = read_line(ledger.log, entry.place, entry.length)
        check_leaf(line, entry.leaf, where)
        yield from rows_of(ledger.artifacts, decode_line(line, where), passed)
    except (DamageError, InputError) as error:
        passed.problems.append(f"entry {entry.seq}: {error}")
    except OSError as error:
        raise LedgerError(
            f"entry {entry.seq}: its evidence cannot be unpacked: {error}; set TMPDIR to "
            "another directory"
        ) from error


# In the background


def update_index(ledger: LedgerReader, watch: Watch = watch_nothing) -> bool:
    """Update the index at the lowest priority; False if another process is doing so."""
    if ledger.index.path is None:
        return False
    os.nice(_LOWEST_PRIORITY)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(ledger.index.path.with_name("search.lock"), flags, 0o600)
    try:
        if not try_lock(fd):
            return False
        ask_index(ledger, lambda _: None, watch)
    finally:
        os.close(fd)
    return True


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
            # -P: no module is imported from the working directory.
            words = [sys.executable, "-P", "-m", "proctor", "search", "--update"]
            words += ["--ledger", str(directory.absolute())]
            null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
            # A session of its own: closing the terminal does not end it.
            return os.posix_spawn(words[0], words, os.environ, file_actions=null, setsid=True)
    return None


def _count_indexed(path: Path) -> int:
    try:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as index:
            return int(index.execute("SELECT size FROM position").fetchone()[0])
    except (sqlite3.Error, ValueError, TypeError):
        return 0


# For `ledger verify`: a wrong index would silently give wrong answers


_ROWS = "SELECT id >> ?, count(*) FROM rows_docsize GROUP BY 1"
_BLOCKS = "SELECT DISTINCT first >> ? FROM blocks"
# Reported to nobody: the ledger was removed, and another was created in its place.
_REPLACED = "it is of another log"


def check_search_index(directory: Path) -> str | None:
    """Delete the search index of a valid ledger if it is wrong, and return what was wrong.

    The words of rows are not compared: that would take as long as building the index again.

    Raises:
        LedgerError: it is wrong, and cannot be deleted.
        DamageError: the log does not match its checkpoint.
    """
    with open_reader(directory) as ledger:
        path = ledger.index.path and ledger.index.path.with_name(SEARCH_INDEX)
        if path is None or not path.exists():
            return None
        problem: str | None = "it is not a regular file"
        if path.is_file() and not path.is_symlink():
            try:
                with contextlib.closing(SearchIndex(path, ledger.checkpoint().origin)) as index:
                    problem = _find_problem(ledger, index)
            except (sqlite3.DatabaseError, ValueError, TypeError) as error:
                problem = str(error)
    if problem is None:
        return None
    _remove(path)
    if problem is _REPLACED:
        return None
    return f"{path} did not match the log ({problem}); the next search builds it again"


def _find_problem(ledger: LedgerReader, index: SearchIndex) -> str | None:
    if not index.is_of(index.origin):
        found = index.execute("SELECT origin FROM position").fetchall()
        is_same = found == [(index.origin,)]
        return "another version of proctor made it" if is_same else _REPLACED
    with index.reading():
        position = index.position()
        with snapshot(ledger) as size:
            root = TiledTree(ledger.index, min(position.size, size)).root()
            there = {
                seq
                for kind in _KINDS_WITH_TEXT
                for seq in ledger.index.places(kind, size=position.size)
            }
        if position.size > size or root != position.root():
            return "it was made from another log"
        read = dict(index.execute("SELECT seq, number FROM read"))
        rows = dict(index.execute(_ROWS, ROW_BITS))
        blocks = {seq for (seq,) in index.execute(_BLOCKS, ROW_BITS)}
    # FTS5 checks its own word lists.
    index.execute("INSERT INTO rows (rows) VALUES ('integrity-check')")
    if read.keys() != there:
        return "it has read entries that the log does not have"
    texts = {seq: number for seq, number in read.items() if number}
    if rows != texts:
        return "rows that it has read are missing"
    return None if blocks == texts.keys() else "texts of its rows are missing"
