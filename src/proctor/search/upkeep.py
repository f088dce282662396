"""Updates the index from the log, from where it is, or from the start if it does not match.

It is rebuilt if it was made from another log, or from this one before it was rewritten; if
something was withheld since, so that none of it stays in the index; and if missing evidence has
returned. Entries are added in batches: a process that is killed loses one batch.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proctor.errors import LedgerError
from proctor.files import try_lock
from proctor.ledger.derived import SEARCH_INDEX, remove_index
from proctor.ledger.entry import WithholdEntry
from proctor.ledger.query import snapshot
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tree import Frontier
from proctor.ledger.trial_index import IndexedEntry, TrialFilter
from proctor.search.index import MovedError, SearchIndex, waiting
from proctor.search.pieces import Piece, reading

_BATCH_BYTES = 64 << 20
_BATCH_ENTRIES = 2000
_TRIES = 100
# Pause between batches: a process that waits for the lock to withhold something polls it.
_PAUSE_SECONDS = 0.12
KINDS_WITH_TEXT = ("trial", "review", "note")
"""Kinds of entries with texts."""
_LOCK = "search.lock"
_LOWEST_PRIORITY = 19
# Prefix of a withheld line's index, in the table of missing evidence.
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
    path = ledger.index.path
    place = None if path is None else path.with_name(SEARCH_INDEX)
    bring_up = _discard_unfit if is_now else partial(_catch_up, watch=watch)
    try:
        return _ask_once(ledger, place, ask, bring_up)
    except sqlite3.OperationalError as error:
        raise LedgerError(_render_failure(place, error)) from error
    except sqlite3.DatabaseError:
        if place is not None:
            _remove(place)
    try:
        return _ask_once(ledger, place, ask, bring_up)
    except sqlite3.Error as error:
        raise LedgerError(_render_failure(place, error)) from error


def update_index(ledger: LedgerReader, watch: Watch = watch_nothing) -> bool:
    """Update the index at the lowest priority; False if another process is doing so."""
    if ledger.index.path is None:
        return False
    os.nice(_LOWEST_PRIORITY)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(ledger.index.path.with_name(_LOCK), flags, 0o600)
    try:
        if not try_lock(fd):
            return False
        ask_index(ledger, lambda _: None, watch)
    finally:
        os.close(fd)
    return True


def _ask_once[T](
    ledger: LedgerReader,
    place: Path | None,
    ask: Callable[[SearchIndex], T],
    bring_up: Callable[[LedgerReader, SearchIndex], SearchIndex],
) -> T:
    index = bring_up(ledger, _open(place, ledger.checkpoint().origin))
    try:
        with index.reading():
            return ask(index)
    finally:
        index.close()


def _open(place: Path | None, origin: str) -> SearchIndex:
    return SearchIndex.in_memory() if place is None else SearchIndex.open(place, origin)


def _remove(place: Path) -> None:
    try:
        remove_index(place)
    except OSError as error:
        raise LedgerError(f"{place}: cannot be removed: {error}") from error


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
    leaves: list[bytes]
    """Leaf hashes of the entries to read."""
    kinds: list[str]
    sizes: list[int]
    """Bytes of their evidence."""
    places: list[IndexedEntry]
    """The entries with texts."""
    doomed: list[str]
    """Evidence that was withheld according to entries but still exists: about to be removed."""


def _catch_up(ledger: LedgerReader, index: SearchIndex, watch: Watch) -> SearchIndex:
    for _ in range(_TRIES):
        try:
            ahead = _look_ahead(ledger, index)
            if ahead is not None:
                _read_on(ledger, index, ahead, watch)
                return index
        except MovedError:
            # Another process wrote to it, or removed it because of a secret.
            index.close()
            index = _open(index.path, index.origin)
            continue
        except BaseException:
            index.close()
            raise
        index = _begin_anew(index)
    raise LedgerError(f"{ledger.where}: other processes keep writing to it; try again")


def _discard_unfit(ledger: LedgerReader, index: SearchIndex) -> SearchIndex:
    """The index as it is, or an empty one if it does not match, or has what was withheld since."""
    try:
        return index if _look_ahead(ledger, index) is not None else _begin_anew(index)
    except BaseException:
        index.close()
        raise


def _begin_anew(index: SearchIndex) -> SearchIndex:
    path = index.path
    index.close()
    if path is not None:
        _remove(path)
    return _open(path, index.origin)


def _look_ahead(ledger: LedgerReader, index: SearchIndex) -> _Ahead | None:
    """What is still to be read; None if the index does not match and must be built again."""
    frontier = waiting(index.position)
    with snapshot(ledger) as size:
        root = ledger.checkpoint().tree
        entries = ledger.index.entries(frontier.size, size)
        wanted = TrialFilter(from_seq=frontier.size)
        trials = ledger.index.trials(wanted, size=size) if entries else ()
        bytes_of = {row.seq: row.evidence_bytes for row in trials}
    ahead = _Ahead(
        frontier=frontier,
        leaves=[entry.leaf for entry in entries],
        kinds=[entry.kind for entry in entries],
        sizes=[bytes_of.get(entry.seq, 0) for entry in entries],
        places=[entry for entry in entries if entry.kind in KINDS_WITH_TEXT],
        doomed=_find_doomed(ledger, [entry.seq for entry in entries if entry.kind == "withhold"]),
    )
    if frontier.size == 0:
        return ahead
    reached = frontier.copy()
    reached.extend(ahead.leaves)
    fits = root.size != reached.size or reached.root() == root.root
    if frontier.size > size or not fits or "withhold" in ahead.kinds:
        return None
    came_back = any(_is_there(ledger, what) for what in waiting(index.absent))
    went = any(not _is_there(ledger, what) for what in waiting(index.doomed))
    return None if came_back or went else ahead


def _find_doomed(ledger: LedgerReader, seqs: Iterable[int]) -> list[str]:
    """Evidence that these entries say was withheld, and that still exists."""
    entries = [entry for entry in map(ledger.entry, seqs) if isinstance(entry, WithholdEntry)]
    named = {sha256 for entry in entries for sha256 in entry.artifacts}
    named |= {f"{_LINE}{entry.entry}" for entry in entries if entry.entry is not None}
    return sorted(what for what in named if _is_there(ledger, what))


def _is_there(ledger: LedgerReader, what: str) -> bool:
    """Whether evidence, or a line, exists now."""
    if not what.startswith(_LINE):
        return ledger.artifacts.holds(what)
    seq = int(what.removeprefix(_LINE))
    entry = ledger.index.entry(seq)
    return entry is not None and entry.kind != ""


def _read_on(ledger: LedgerReader, index: SearchIndex, ahead: _Ahead, watch: Watch) -> None:
    if not ahead.leaves:
        return
    # Evidence may be withheld while this process waits: nothing is read before it has the lock.
    index.begin(after=ahead.frontier.size)
    try:
        for what in ahead.doomed:
            index.note_doomed(what)
        with reading(ledger.log, ledger.artifacts, ahead.places, sum(ahead.sizes)) as pieces:
            _Storing(index, ahead, watch).store(pieces)
    except BaseException:
        index.roll_back()
        raise


class _Storing:
    """Adds entries to the index, with its progress."""

    def __init__(self, index: SearchIndex, ahead: _Ahead, watch: Watch) -> None:
        self._index = index
        self._ahead = ahead
        self._watch = watch
        self._frontier = ahead.frontier.copy()
        self._done = self._kept = 0
        self._total = sum(ahead.sizes)

    def store(self, pieces: Iterable[Piece]) -> None:
        at = 0
        for piece in pieces:
            at = self._index.add(piece, at)
            if piece.is_last:
                at = 0
                self._finish(piece.seq)
        self._keep(len(self._ahead.leaves))
        self._watch(self._total, self._total)

    def _finish(self, seq: int) -> None:
        """Finish an entry; commit now and then."""
        place = seq - self._ahead.frontier.size
        self._done += self._ahead.sizes[place]
        self._watch(min(self._done, self._total - 1), self._total)
        taken = self._ahead.frontier.size + place + 1 - self._frontier.size
        if self._done - self._kept >= _BATCH_BYTES or taken >= _BATCH_ENTRIES:
            self._keep(place + 1)
            time.sleep(_PAUSE_SECONDS)
            self._index.begin(after=self._frontier.size)

    def _keep(self, until: int) -> None:
        begin = self._frontier.size - self._ahead.frontier.size
        for place in range(begin, until):
            if not self._ahead.kinds[place]:
                self._index.note_absent(f"{_LINE}{self._ahead.frontier.size + place}")
        self._frontier.extend(self._ahead.leaves[begin:until])
        self._index.commit(self._frontier)
        self._kept = self._done
