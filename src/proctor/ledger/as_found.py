"""A ledger in a directory as it was found, whether or not its log matches what was signed.

    see_files, is_grown   what changed since it was last looked at
    read_found            its lines
    index_found           an index of the lines that are valid entries, in a directory of its own
    open_found            the ledger with that index, for reading

For pages, which show as much as possible of a damaged ledger. Checks nothing: see `verification`.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from proctor.errors import DamageError
from proctor.ledger.admission import admit_line
from proctor.ledger.derived import INDEX
from proctor.ledger.index import Index
from proctor.ledger.ledger import OpenLedger, open_artifacts
from proctor.ledger.log import FileLog, Line, Place, Stamp, read_lines
from proctor.ledger.note import Checkpoint
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tree import EMPTY_ROOT, Frontier, Tree, leaf_hash
from proctor.ledger.trial_index import Indexed, Position

type Seen = tuple[bytes, dict[int, Stamp]]
"""The checkpoint, and the stamps of the segments."""

_BATCH = 1000
# Higher than any entry number of a genuine log.
_HIGHEST = 1 << 31


class _FoundLedger(OpenLedger):
    """A damaged ledger, opened for reading without checking it against the checkpoint."""

    def refresh(self) -> Checkpoint:
        """The unsigned checkpoint that the found log would have."""
        return Checkpoint("", Tree(self.index.size(), EMPTY_ROOT))

    def keep_up(self) -> None:
        """Do nothing: changes are found by reopening."""


def see_files(directory: Path) -> Seen:
    """The checkpoint and the segments as they are now; empty where they cannot be read."""
    log = FileLog(directory)
    try:
        checkpoint = log.read_checkpoint()
    except OSError:
        checkpoint = b""
    return checkpoint, _stamps(log)


def is_grown(before: Seen, after: Seen) -> bool:
    """Whether the log only grew: nothing was replaced or cut off."""
    for number, (_, size, changed) in before[1].items():
        _, now, changed_now = after[1].get(number, (0, -1, 0))
        # Appending raises the size; a change without growth is a rewrite.
        if (now, changed_now) != (size, changed) and now <= size:
            return False
    return True


def _stamps(log: FileLog) -> dict[int, Stamp]:
    """Stamps of the segments; empty if their directory cannot be read."""
    try:
        return log.stamps()
    except DamageError:
        return {}


def has_lines(directory: Path) -> bool:
    """Whether there are segments of a log, with or without a checkpoint."""
    return bool(_stamps(FileLog(directory)))


def read_note(directory: Path) -> bytes:
    """The bytes of the checkpoint."""
    return FileLog(directory).read_checkpoint()


def read_found(directory: Path) -> Iterator[Line]:
    """The lines of the log, whatever they claim."""
    return read_lines(FileLog(directory))


def open_found(directory: Path, place: Path) -> LedgerReader:
    """Open the ledger with the index that `index_found` made; use it in a `with` block."""
    index = Index.open(place / INDEX, "")
    return _FoundLedger(FileLog(directory), open_artifacts(directory), index)


def index_found(directory: Path, place: Path) -> None:
    """Index all lines that are valid entries, whatever was signed, in another directory."""
    index = Index.open(place / INDEX, "")
    try:
        batch: list[Indexed] = []
        for indexed in _read_entries(FileLog(directory)):
            batch.append(indexed)
            if len(batch) == _BATCH:
                _add(index, batch)
                batch = []
        _add(index, batch)
    finally:
        index.close()


def _read_entries(log: FileLog) -> Iterator[Indexed]:
    known: set[int] = set()
    for number in _stamps(log):
        with contextlib.suppress(DamageError):  # an unreadable segment has no lines
            for line in read_lines(log, Place(number)):
                # read_lines continues into the next segment, which the outer loop reads itself.
                if line.place.segment != number:
                    break
                with contextlib.suppress(DamageError):  # not an entry, or not a usable one
                    entry = admit_line(line.data, "a line")
                    # A forged line may repeat a number, or claim one that would make the index
                    # huge.
                    if entry.seq in known or not 0 <= entry.seq < _HIGHEST:
                        continue
                    known.add(entry.seq)
                    yield Indexed(line.place, len(line.data), leaf_hash(line.data), entry)


def _add(index: Index, batch: list[Indexed]) -> None:
    try:
        _add_all(index, batch)
    except (DamageError, sqlite3.Error, OverflowError):
        for line in batch:
            # One of them has no record, or numbers too large for SQLite.
            with contextlib.suppress(DamageError, sqlite3.Error, OverflowError):
                _add_all(index, [line])


def _add_all(index: Index, batch: list[Indexed]) -> None:
    # Lines may be missing, so the size follows from the highest number and not from the count.
    size = max([index.size(), *(line.entry.seq + 1 for line in batch)])
    index.add(batch, Position(Place(), Frontier(size, []), ""), after=index.size())
