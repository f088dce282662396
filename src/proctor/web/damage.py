"""Whether the ledger is damaged, and what can be shown of it then.

A cheap look at each request: where neither the checkpoint nor the log changed since the last one,
what was found then holds. Else the index is brought up to the log, which must give what the
checkpoint signs; and all lines are hashed once in the background. Evidence is not read here: who
opens it sees whether it is what was sealed.

A log that does not give what was signed is shown as it was found, by an index of its own.
"""

import contextlib
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import DamageError, LedgerError, NoteError, ProctorError
from proctor.ledger.admission import admit_line
from proctor.ledger.derived import INDEX
from proctor.ledger.index import Index, Indexed, Position
from proctor.ledger.ledger import Ledger
from proctor.ledger.note import Checkpoint
from proctor.ledger.segments import (
    Place,
    find_segments,
    read_checkpoint,
    read_lines,
    segment_path,
)
from proctor.ledger.tree import EMPTY_ROOT, Frontier, Tree, leaf_hash
from proctor.ledger.verification.verify import verify_ledger
from proctor.sentence import count_of

type Seen = tuple[bytes, tuple[tuple[int, int, int], ...]]
"""The checkpoint, and number, size and time of each segment."""

_PAUSE = 20.0
"""Seconds between two verifications of a ledger that grows; at least ten times what one took."""
_BATCH = 1000
_HIGHEST = 1 << 31
"""No entry of an honest log has such a number."""


class Health:
    """What is known of a ledger's state; one for all requests."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._seen: Seen | None = None
        self._found: str | None = None
        """What the cheap look found."""
        self._verified: str | None = None
        """What the last verification found."""
        self._verified_of: Seen | None = None
        self._verifying: threading.Thread | None = None
        self._next = 0.0
        self._kept: tempfile.TemporaryDirectory[str] | None = None
        """Where the index of a damaged log lies."""

    @property
    def seen(self) -> Seen | None:
        """What the ledger was at the last look."""
        return self._seen

    def look(self) -> str | None:
        """What is wrong with the ledger, in a sentence; None where nothing is known to be."""
        with self._lock:
            seen = _see(self._directory)
            if seen != self._seen:
                self._check()
                self._seen = seen
                if self._verified is not None:
                    self._next = 0.0  # whether it still holds is worth knowing at once
            self._verify_later(seen)
            return self._found or self._verified

    @contextlib.contextmanager
    def opened(self) -> Iterator[Ledger]:
        """The ledger; a damaged one as it was found.

        Raises:
            LedgerError: it cannot be opened.
        """
        self.look()
        with self._lock:
            kept = Path(self._kept.name) if self._kept else None
        if kept is None:
            with Ledger.open(self._directory) as ledger:
                yield ledger
            return
        with FoundLedger(self._directory, Index.open(kept / INDEX, "")) as found:
            yield found

    def _check(self) -> None:
        found, kept = None, None
        try:
            with Ledger.open(self._directory) as ledger:
                ledger.refresh()
        except (DamageError, NoteError) as error:
            found, kept = str(error), _index_found(self._directory)
        except LedgerError as error:
            # Without a checkpoint it is still a log.
            if _find_segments(self._directory / "entries"):
                found, kept = str(error), _index_found(self._directory)
        self._found = found
        if self._kept is not None:
            self._kept.cleanup()
        self._kept = kept

    def _verify_later(self, seen: Seen) -> None:
        """Hash all lines in the background, once after a change, and not all the time."""
        is_busy = self._verifying is not None and self._verifying.is_alive()
        if seen == self._verified_of or is_busy or time.monotonic() < self._next:
            return
        self._verified_of = seen
        self._verifying = threading.Thread(
            target=self._verify, args=(seen,), name="verify", daemon=True
        )
        self._verifying.start()

    def _verify(self, seen: Seen) -> None:
        start = time.monotonic()
        sentence = _verify(self._directory)
        took = time.monotonic() - start
        with self._lock:
            # Files that were replaced while they were read give a finding that holds of neither.
            holds = sentence is None or _is_grown(seen, _see(self._directory))
            self._verified = sentence if holds else None
            self._verified_of = seen if holds else None
            self._next = time.monotonic() + max(_PAUSE, 10 * took)

    def close(self) -> None:
        """Let go of what was kept; the next look finds it again."""
        self.wait()
        with self._lock:
            if self._kept is not None:
                self._kept.cleanup()
            self._kept = self._seen = None

    def wait(self) -> None:
        """Wait until a verification that is under way has ended."""
        verifying = self._verifying
        if verifying is not None:
            verifying.join()


class FoundLedger(Ledger):
    """A damaged ledger for reading, as it was found: nothing is held against the checkpoint."""

    def refresh(self) -> Checkpoint:
        """What the log would be that was found; nobody signed it."""
        return Checkpoint("", Tree(self.index.size(), EMPTY_ROOT))

    def keep_up(self) -> None:
        """Nothing: whatever changes is found anew."""


def _see(directory: Path) -> Seen:
    try:
        checkpoint = read_checkpoint(directory)
    except OSError:
        checkpoint = b""
    entries = directory / "entries"
    return checkpoint, tuple(_see_segment(entries, number) for number in _find_segments(entries))


def _is_grown(before: Seen, after: Seen) -> bool:
    """Whether nothing that was there was replaced or cut off."""
    segments = {number: (size, time) for number, size, time in after[1]}
    return all(
        number in segments and (segments[number] == (size, time) or segments[number][0] > size)
        for number, size, time in before[1]
    )


def _find_segments(entries: Path) -> list[int]:
    """The segments that are there; none where their directory cannot be read."""
    try:
        return find_segments(entries)
    except DamageError:
        return []


def _see_segment(entries: Path, number: int) -> tuple[int, int, int]:
    try:
        found = segment_path(entries, number).lstat()
    except OSError:
        return number, -1, 0
    return number, found.st_size, found.st_mtime_ns


def _verify(directory: Path) -> str | None:
    try:
        result = verify_ledger(directory, fast=True, processes=1)
    except ProctorError as error:
        return str(error)
    if result.is_sound:
        return None
    more = len(result.damage) - 1
    rest = f", and {count_of(more, 'further finding')}" if more else ""
    return f"{result.damage[0].message}{rest}; `proctor ledger verify` says all"


def _index_found(directory: Path) -> tempfile.TemporaryDirectory[str]:
    """An index of all lines that are entries, whatever was signed."""
    kept = tempfile.TemporaryDirectory(prefix="proctor-view-")
    index = Index.open(Path(kept.name) / INDEX, "")
    try:
        batch: list[Indexed] = []
        for indexed in _read_entries(directory / "entries"):
            batch.append(indexed)
            if len(batch) == _BATCH:
                _add(index, batch)
                batch = []
        _add(index, batch)
    finally:
        index.close()
    return kept


def _read_entries(entries: Path) -> Iterator[Indexed]:
    known: set[int] = set()
    for number in _find_segments(entries):
        with contextlib.suppress(DamageError):  # a segment that cannot be read has no lines
            for line in read_lines(entries, Place(number)):
                if line.place.segment != number:
                    break
                with contextlib.suppress(DamageError):  # no entry, or none that may be used
                    entry = admit_line(line.data, "a line")
                    if entry.seq in known or not 0 <= entry.seq < _HIGHEST:
                        continue
                    known.add(entry.seq)
                    yield Indexed(line.place, len(line.data), leaf_hash(line.data), entry)


def _add(index: Index, batch: list[Indexed]) -> None:
    try:
        _add_all(index, batch)
    except (DamageError, sqlite3.Error, OverflowError):
        for line in batch:
            # One of them holds no record, or numbers that an index has no room for.
            with contextlib.suppress(DamageError, sqlite3.Error, OverflowError):
                _add_all(index, [line])


def _add_all(index: Index, batch: list[Indexed]) -> None:
    size = max([index.size(), *(line.entry.seq + 1 for line in batch)])
    index.add(batch, Position(Place(), Frontier(size, []), ""), after=index.size())
