"""The index brought up to the log, from where it is, or from the start where it does not fit.

It begins anew where it was made from another log, or from this one before it was rewritten; where
something was withheld since, so that nothing of that stays in it; and where evidence that was
absent has come back. Entries are taken in by batches: a process that is killed loses one batch.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import DamageError, InputError, LedgerError
from proctor.ledger.derived import remove_index
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import looking
from proctor.ledger.tree import Frontier
from proctor.search.index import MovedError, SearchIndex
from proctor.search.place import find_place
from proctor.search.texts import Passed, rows_of

_BATCH_CHARACTERS = 32 << 20
_BATCH_ENTRIES = 2000
_TRIES = 100
_LINE = "entry "
"""What stands before the place of a line that was withheld, among what is absent."""

type Watch = Callable[[int, int], None]
"""Told how many bytes of evidence were read, and of how many."""


def watch_nothing(_done: int, _total: int) -> None:
    """Nobody looks."""


def ask_index[T](
    ledger: Ledger, ask: Callable[[SearchIndex], T], watch: Watch = watch_nothing
) -> T:
    """What the index over a ledger's texts answers, once it is as far as the log is.

    An index that turns out to be damaged is made again.

    Raises:
        LedgerError: the index cannot be written.
        DamageError: the log does not give what its checkpoint says.
    """
    place = find_place(ledger.directory, os.environ)
    try:
        return _ask_once(ledger, place, ask, watch)
    except sqlite3.OperationalError as error:
        raise LedgerError(_render_failure(place, error)) from error
    except sqlite3.DatabaseError:
        if place is not None:
            _remove(place)
    try:
        return _ask_once(ledger, place, ask, watch)
    except sqlite3.Error as error:
        raise LedgerError(_render_failure(place, error)) from error


def _ask_once[T](
    ledger: Ledger, place: Path | None, ask: Callable[[SearchIndex], T], watch: Watch
) -> T:
    index = _catch_up(ledger, _open(place), watch)
    try:
        return ask(index)
    finally:
        index.close()


def _open(place: Path | None) -> SearchIndex:
    return SearchIndex.in_memory() if place is None else SearchIndex.open(place)


def _remove(place: Path) -> None:
    try:
        remove_index(place)
    except OSError as error:
        raise LedgerError(f"{place}: cannot be removed: {error}") from error


def _render_failure(path: Path | None, error: sqlite3.Error) -> str:
    if "full" in str(error) or "disk I/O" in str(error):
        where = path.parent if path is not None else "memory"
        return f"{where}: no room for the index of the search ({error}); free some and search again"
    return f"{path}: the index cannot be used: {error}; delete it, and it is made again"


@dataclass(frozen=True, slots=True)
class _Ahead:
    """What the index has still to read."""

    frontier: Frontier
    """Where it is."""
    leaves: list[bytes]
    """Of the entries to come."""
    kinds: list[str]
    sizes: list[int]
    """Bytes of their evidence."""


def _catch_up(ledger: Ledger, index: SearchIndex, watch: Watch) -> SearchIndex:
    for _ in range(_TRIES):
        try:
            ahead = _look_ahead(ledger, index)
            if ahead is not None:
                _read_on(ledger, index, ahead, watch)
                return index
        except MovedError:
            # Another process wrote to it, or removed it because of a secret.
            index.close()
            index = _open(index.path)
            continue
        except BaseException:
            index.close()
            raise
        index = _begin_anew(index)
    raise LedgerError(f"{ledger.directory}: others write to it without a pause; try again")


def _begin_anew(index: SearchIndex) -> SearchIndex:
    path = index.path
    index.close()
    if path is not None:
        _remove(path)
    return _open(path)


def _look_ahead(ledger: Ledger, index: SearchIndex) -> _Ahead | None:
    """What is still to be read; None where the index does not fit and has to begin anew."""
    frontier = index.position()
    with looking(ledger) as size:
        root = ledger.checkpoint().tree
        rows = ledger.index.select(
            "SELECT leaf, kind, coalesce(evidence_bytes, 0) FROM entries LEFT JOIN trials "
            "USING (seq) WHERE seq >= ? AND seq < ? ORDER BY seq",
            (frontier.size, size),
        )
    ahead = _Ahead(frontier, [row[0] for row in rows], [row[1] for row in rows],
                   [row[2] for row in rows])  # fmt: skip
    if frontier.size == 0:
        return ahead
    reached = frontier.copy()
    reached.extend(ahead.leaves)
    fits = root.size != reached.size or reached.root() == root.root
    if frontier.size > size or not fits or "withhold" in ahead.kinds:
        return None
    came_back = any(_is_back(ledger, what) for what in index.absent())
    return None if came_back else ahead


def _is_back(ledger: Ledger, what: str) -> bool:
    """Whether evidence, or a line, that was absent is there now."""
    if not what.startswith(_LINE):
        return ledger.artifacts.holds(what)
    seq = int(what.removeprefix(_LINE))
    kinds = ledger.index.select("SELECT kind FROM entries WHERE seq = ?", (seq,))
    return bool(kinds and kinds[0][0])


def _read_on(ledger: Ledger, index: SearchIndex, ahead: _Ahead, watch: Watch) -> None:
    frontier = ahead.frontier.copy()
    total, done = sum(ahead.sizes), 0
    for batch in _in_batches(ahead):
        index.begin(after=frontier.size)
        try:
            done = _take_in(ledger, index, _Batch(batch, ahead, done, total), watch)
            frontier.extend(ahead.leaves[at] for at in batch)
            index.commit(frontier)
        except BaseException:
            index.roll_back()
            raise
    if ahead.leaves:
        watch(total, total)


@dataclass(frozen=True, slots=True)
class _Batch:
    places: Sequence[int]
    ahead: _Ahead
    done: int
    total: int


def _in_batches(ahead: _Ahead) -> Iterator[range]:
    """Entries that are taken in together: few enough to be lost, enough to be fast."""
    begin = held = 0
    for at, size in enumerate(ahead.sizes):
        held += size
        if held >= _BATCH_CHARACTERS or at + 1 - begin >= _BATCH_ENTRIES:
            yield range(begin, at + 1)
            begin, held = at + 1, 0
    if begin < len(ahead.sizes):
        yield range(begin, len(ahead.sizes))


def _take_in(ledger: Ledger, index: SearchIndex, batch: _Batch, watch: Watch) -> int:
    done = batch.done
    for at in batch.places:
        seq = batch.ahead.frontier.size + at
        if batch.ahead.kinds[at] in ("trial", "review", "note"):
            _add_entry(ledger, index, seq)
        elif not batch.ahead.kinds[at]:
            index.note(seq, [f"{_LINE}{seq}"], ())
        done += batch.ahead.sizes[at]
        watch(min(done, batch.total - 1), batch.total)
    return done


def _add_entry(ledger: Ledger, index: SearchIndex, seq: int) -> None:
    passed = Passed()
    try:
        index.add(seq, rows_of(ledger, ledger.entry(seq), passed))
    except (DamageError, InputError) as error:
        passed.problems.append(f"entry {seq}: {error}")
    index.note(seq, passed.absent, passed.problems)
