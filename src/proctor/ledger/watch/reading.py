"""Reads the lines of a log since the last check, and computes the tree over all lines.

Reading begins at the first segment whose file changed. Lines that were decoded before are only
hashed again, so that changes in place are noticed. Changes that somebody hid by resetting a file's
times are found by `proctor ledger verify`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from proctor.errors import DamageError
from proctor.ledger.admission import admit_line
from proctor.ledger.entry import (
    AnyEntry,
    AttestEntry,
    KeyEntry,
    SupersedeEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    encode_entry,
    record_digest,
)
from proctor.ledger.log import Line, LogStore, Place, Stamp, read_lines
from proctor.ledger.row import read_row
from proctor.ledger.tree import Frontier, leaf_hash
from proctor.ledger.upkeep import leaf_of
from proctor.ledger.watch.cursor import Cursor, SealedAt, Segment
from proctor.record.reasons import NOT_SCORED, outcome_of

_WITHHELD = b'{"withheld":'
# Hex digits of a digest that are kept: enough to avoid collisions.
_LENGTH = 32


@dataclass(frozen=True, slots=True)
class WatchedTrial:
    """What is kept of a trial's entry; whole records might not fit into memory."""

    experiment: str
    trial: str
    sealed: SealedAt


type WatchedEntry = WatchedTrial | WithholdEntry | SupersedeEntry | KeyEntry | AttestEntry


def shorten(digest: str) -> str:
    """The kept part of a digest."""
    return digest[:_LENGTH]


@dataclass(slots=True)
class NewLines:
    """What was found after the known lines."""

    frontier: Frontier
    segments: list[Segment]
    entries: list[tuple[int, WatchedEntry]] = field(default_factory=list)
    """New entries that may cause events, by position."""
    gone: dict[int, bytes] = field(default_factory=dict)
    """Leaf hashes of withheld lines, old and new, by position."""
    malformed: list[tuple[int, str]] = field(default_factory=list)
    roots: dict[int, bytes] = field(default_factory=dict)
    """Roots at the requested sizes, as far as they were reached."""


def read_new(
    log: LogStore,
    stamps: dict[int, Stamp],
    cursor: Cursor,
    size: int,
    *,
    marks: Iterable[int] = (),
    is_whole: bool = False,
) -> NewLines:
    """Read up to a size; with `is_whole`, from the first line on.

    Raises:
        DamageError: the log is shorter, or cannot be read.
    """
    wanted = {mark for mark in marks if 0 < mark <= size}
    known = [] if is_whole else _find_unchanged(cursor, stamps, min([cursor.size, size, *wanted]))
    start = known.pop() if known else Segment(number=0, first=0, peaks="", stamp=(0, 0, 0))
    found = NewLines(start.frontier(), known)
    if start.first in wanted:
        found.roots[start.first] = found.frontier.root()
    for line in read_lines(log, Place(start.number)):
        if found.frontier.size >= size:
            break
        _begin_segment(found, line, stamps)
        _take(found, line, cursor.size)
        if found.frontier.size in wanted:
            found.roots[found.frontier.size] = found.frontier.root()
    if found.frontier.size < size:
        raise DamageError(
            f"the log has {found.frontier.size:,} entries; its checkpoint signs {size:,}"
        )
    return found


def _find_unchanged(cursor: Cursor, stamps: dict[int, Stamp], least: int) -> list[Segment]:
    """The segments that need not be read; the last one is where reading begins."""
    known = []
    for segment in cursor.segments:
        if segment.first > least:
            break
        known.append(segment)
        if stamps.get(segment.number) != segment.stamp:
            break
    return known


def _begin_segment(found: NewLines, line: Line, stamps: dict[int, Stamp]) -> None:
    number = line.place.segment
    if found.segments and found.segments[-1].number == number:
        return
    peaks = b"".join(found.frontier.peaks).hex()
    stamp = stamps.get(number, (0, 0, 0))
    found.segments.append(
        Segment(number=number, first=found.frontier.size, peaks=peaks, stamp=stamp)
    )


def _take(found: NewLines, line: Line, known: int) -> None:
    seq, data = found.frontier.size, line.data
    is_withheld = data.startswith(_WITHHELD)
    if seq < known and not is_withheld:
        found.frontier.append(leaf_hash(data))
        return
    try:
        entry = _decode(data, seq)
        leaf = leaf_of(data, entry)
        watched = _to_watched(entry, seq)
    except DamageError as error:
        found.malformed.append((seq, str(error)))
        found.frontier.append(leaf_hash(data))
        return
    if isinstance(entry, KeyEntry):
        found.roots[seq] = found.frontier.root()
    found.frontier.append(leaf)
    if isinstance(entry, Withheld):
        found.gone[seq] = leaf
    elif watched is not None:
        found.entries.append((seq, watched))


def _to_watched(entry: AnyEntry | Withheld, seq: int) -> WatchedEntry | None:
    match entry:
        case TrialEntry():
            row = read_row(entry)
            is_scored = outcome_of(row) != NOT_SCORED
            sealed = SealedAt(seq, shorten(record_digest(entry)), is_scored)
            return WatchedTrial(row.experiment_id, row.trial_id, sealed)
        case WithholdEntry() | SupersedeEntry() | KeyEntry() | AttestEntry():
            return entry
        case _:
            return None


def _decode(data: bytes, seq: int) -> AnyEntry | Withheld:
    entry = admit_line(data, f"entry {seq}")
    if entry.seq != seq:
        raise DamageError(f"entry {seq} says that it is entry {entry.seq}")
    if isinstance(entry, Withheld) and encode_entry(entry) != data.rstrip(b" "):
        raise DamageError(f"entry {seq} is not as proctor writes it")
    return entry


def unexplained_withholdings(found: NewLines, said: Iterable[tuple[int, str]]) -> Iterator[int]:
    """The withheld lines that no entry withholds."""
    known = set(said)
    for seq, leaf in found.gone.items():
        if (seq, leaf.hex()) not in known:
            yield seq
