"""Scan: what the segments of a log hold, piece by piece.

Nothing is judged here: a line is hashed, told apart and,
if it is asked for, decoded; what that means for the ledger is for `verify` to say.
"""

import sqlite3
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import msgspec

from proctor.digest import is_digest, sha256_digest, sha256_slices
from proctor.errors import DamageError
from proctor.ledger.admission import Fault, check_written, find_fault, find_trial_fault
from proctor.ledger.entry import (
    LARGEST_ENTRY,
    AttestEntry,
    KeyEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    decode_line,
    encode_entry,
)
from proctor.ledger.log import LogStore, Place
from proctor.ledger.row import Columns, read_ids, read_row, to_columns
from proctor.ledger.rows import (
    RemarkColumns,
    kind_and_time,
    remark_columns,
)
from proctor.ledger.tree import HASH_SIZE
from proctor.ledger.verification.columns import EntryColumns, has_columns

PIECE = 8 << 20
"""Bytes that are looked at in one go."""
NO_SEQ = -1
"""In place of the number that a line gives itself, where it gives none."""

_TRIAL = b'"kind":"trial"'
_KIND_AT = len('\n{"at":"2000-01-01T00:00:00.000Z",')
_WITHHELD = b'{"withheld":'
_CHUNK = 1 << 19
"""Bytes that are read at a time: what is hashed next is still in the processor's cache."""
_DECODER = msgspec.json.Decoder(TrialEntry)
_LONGEST = (1 << 32) - 1
_NO_LEAF = bytes(HASH_SIZE)


@dataclass(frozen=True, slots=True)
class Torn:
    """A segment's last bytes, where they do not end in a newline."""

    leaf: bytes
    """As if the newline were only missing."""
    leaf_but_last: bytes
    """As if another byte stood where the newline should."""
    length: int


@dataclass(slots=True)
class Scanned:
    """What a piece holds. Lines are numbered from 0 within it."""

    segment: int
    leaves: bytes = b""
    """The leaf hashes, one after the other; a withheld line's as it names it."""
    lengths: array[int] = field(default_factory=lambda: array("I"))
    """Bytes of the lines, newlines left off."""
    seqs: array[int] = field(default_factory=lambda: array("q"))
    """The numbers that the lines give themselves; none where trials were not decoded."""
    entries: list[tuple[int, KeyEntry | WithholdEntry | AttestEntry]] = field(default_factory=list)
    withheld: list[tuple[int, str]] = field(default_factory=list)
    """Lines that were taken out, with what stands in their place if it is not as it should."""
    malformed: list[tuple[int, str]] = field(default_factory=list)
    faults: list[tuple[int, Fault]] = field(default_factory=list)
    """Entries that are written as they should be, and may not be used."""
    identities: list[tuple[int, str, str]] = field(default_factory=list)
    """Line, experiment and trial of every trial."""
    evidence: list[tuple[int, bytes, int]] = field(default_factory=list)
    """Line, SHA-256 and size of every file that a trial names."""
    torn: Torn | None = None
    unreadable: str | None = None
    """Why not all of it could be read."""
    trials: list[Columns] = field(default_factory=list)
    """The trials as the index should have them."""
    remarks: list[RemarkColumns] = field(default_factory=list)
    """What is said of trials as the index should have it."""
    kinds: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Kind and time of the lines that are entries."""
    is_compared: bool = False
    """Whether an index is held against the lines."""
    is_indexed: bool = True
    """Whether the index says the same of these lines, where it was asked."""


def scan_segment(
    log: LogStore,
    segment: int,
    *,
    is_decoded: bool,
    index: sqlite3.Connection | None = None,
) -> Iterator[Scanned]:
    """Look at the lines of a segment, a piece of it at a time.

    Trials are decoded if it is asked for, the other kinds always. With an index, every piece is
    held against it.
    """
    start: int | None = 0
    while start is not None:
        scanned, begin = Scanned(segment, is_compared=index is not None), start
        try:
            start = _scan(log, Place(segment, begin), scanned, is_decoded=is_decoded)
        except OSError as error:
            start, scanned.unreadable = None, error.strerror or str(error)
        if index is not None:
            entries = _entry_columns(scanned, begin)
            scanned.is_indexed = has_columns(index, entries, scanned.trials, scanned.remarks)
        if scanned.lengths or scanned.torn or scanned.unreadable:
            yield scanned


def _entry_columns(scanned: Scanned, start: int) -> list[EntryColumns]:
    """The lines as the index should have them, the first of them beginning at `start`."""
    offsets = accumulate((length + 1 for length in scanned.lengths), initial=start)
    leaves = (
        scanned.leaves[at : at + HASH_SIZE] for at in range(0, len(scanned.leaves), HASH_SIZE)
    )
    return [
        (seq, *scanned.kinds.get(number, ("", "")), scanned.segment, offset, length, leaf)
        for number, (seq, offset, length, leaf) in enumerate(
            zip(scanned.seqs, offsets, scanned.lengths, leaves, strict=False)
        )
    ]


def _scan(log: LogStore, place: Place, scanned: Scanned, *, is_decoded: bool) -> int | None:
    """Take in the lines of a piece: where the next one begins, None at the segment's end."""
    start, stop, buffer = place.offset, place.offset + PIECE, bytearray(_CHUNK)
    while start < stop:
        # What is left of a line at the end of the buffer is read again: that is less work than to
        # keep it. The buffer's first byte stands for the one before the line.
        data = log.read(Place(place.segment, start), len(buffer) - 1)
        read = len(data)
        buffer[1 : read + 1] = data
        whole = _scan_lines(buffer, (read, stop - start), scanned, is_decoded=is_decoded)
        if whole:
            start += whole
        elif read == len(buffer) - 1 and read <= LARGEST_ENTRY:
            buffer = bytearray(2 * len(buffer))
        else:
            _take_last(buffer, read, scanned)
            is_too_long = read > LARGEST_ENTRY
            return _skip_line(log, Place(place.segment, start + read)) if is_too_long else None
    return start


def _skip_line(log: LogStore, place: Place) -> int | None:
    """Where the line after the one at a place begins; None where there is none."""
    at = place.offset
    while chunk := log.read(Place(place.segment, at), _CHUNK):
        if (found := chunk.find(b"\n")) >= 0:
            return at + found + 1
        at += len(chunk)
    return None


def _scan_lines(
    buffer: bytearray, owned: tuple[int, int], scanned: Scanned, *, is_decoded: bool
) -> int:
    """Take in the whole lines among the bytes that were read, if they begin before a limit.

    How many bytes they are is returned.
    """
    cuts = _cut(buffer, *owned)
    first, seqs = len(scanned.lengths), [NO_SEQ] * len(cuts)
    with memoryview(buffer) as view:
        leaves = sha256_slices(view, cuts)
        for number, (before, end) in enumerate(cuts):
            if not buffer.startswith(_TRIAL, before + _KIND_AT):
                line = bytes(view[before + 1 : end])
                leaves[number], seqs[number] = _take_other(
                    line, leaves[number], first + number, scanned
                )
            elif is_decoded:
                seqs[number] = _take_trial(view[before + 1 : end], first + number, scanned)
    scanned.leaves += b"".join(leaves)
    scanned.lengths.extend([end - before - 1 for before, end in cuts])
    scanned.seqs.extend(seqs)
    return cuts[-1][1] if cuts else 0


def _cut(buffer: bytearray, filled: int, limit: int) -> list[tuple[int, int]]:
    """Where lines begin and end, each with the byte before it.

    That byte, the newline of the line before, becomes the 0x00 that leaves are hashed with: no
    line is copied.
    """
    ends = [0]
    end, stop, find = 0, filled + 1, buffer.find
    while end < limit and (end := find(b"\n", end + 1, stop)) >= 0:
        ends.append(end)
    for end in ends:
        buffer[end] = 0
    return list(pairwise(ends))


def _take_last(buffer: bytearray, length: int, scanned: Scanned) -> None:
    """Take in a line that does not end."""
    if length == 0:
        return  # somebody cut the segment just now
    if length <= LARGEST_ENTRY:
        line = b"\x00" + buffer[1 : length + 1]
        scanned.torn = Torn(sha256_digest(line), sha256_digest(line[:-1]), length)
        return
    # Longer than any that is written: never held whole, nor hashed.
    scanned.malformed.append((len(scanned.lengths), f"a line of more than {LARGEST_ENTRY:,} bytes"))
    scanned.leaves += _NO_LEAF
    scanned.lengths.append(_LONGEST)
    scanned.seqs.append(NO_SEQ)


def _take_trial(line: memoryview, number: int, scanned: Scanned) -> int:
    try:
        entry = _DECODER.decode(line)
        check_written(line, entry, "the line")
        experiment_id, trial_id = read_ids(entry)
        fault = find_trial_fault(entry, experiment_id, trial_id)
    except (msgspec.MsgspecError, DamageError, RecursionError, UnicodeDecodeError) as error:
        scanned.malformed.append((number, str(error)))
        return NO_SEQ
    if fault is None or not fault.is_id:
        # Whatever else is wrong with it: the same trial twice has a name of its own.
        scanned.identities.append((number, experiment_id, trial_id))
    if fault is not None:
        scanned.faults.append((number, fault))
        return entry.seq
    if scanned.is_compared:
        scanned.trials.append(to_columns(read_row(entry)))
        scanned.kinds[number] = kind_and_time(entry)
    for file in entry.evidence:
        scanned.evidence.append((number, bytes.fromhex(file.sha256), file.size))
    return entry.seq


def _take_other(line: bytes, leaf: bytes, number: int, scanned: Scanned) -> tuple[bytes, int]:
    """The leaf and the number of a line that is no trial, or does not look like one."""
    if len(line) > LARGEST_ENTRY:
        scanned.malformed.append((number, f"a line of {len(line):,} bytes"))
        return leaf, NO_SEQ
    if line.startswith(_WITHHELD):
        return _take_withheld(line, leaf, number, scanned)
    try:
        entry = decode_line(line, "the line")
        if isinstance(entry, TrialEntry | Withheld):
            # Only a line that is not as it was written comes here: nothing is kept of it.
            scanned.malformed.append((number, "an entry that is not as proctor writes it"))
            return leaf, entry.seq
        check_written(line, entry, "the line")
    except DamageError as error:
        scanned.malformed.append((number, str(error)))
        return leaf, NO_SEQ
    if fault := find_fault(entry):
        scanned.faults.append((number, fault))
        return leaf, entry.seq
    scanned.remarks += remark_columns(entry)
    scanned.kinds[number] = kind_and_time(entry)
    if isinstance(entry, KeyEntry | WithholdEntry | AttestEntry):
        scanned.entries.append((number, entry))
    return leaf, entry.seq


def _take_withheld(line: bytes, leaf: bytes, number: int, scanned: Scanned) -> tuple[bytes, int]:
    try:
        found = decode_line(line, "the line")
    except DamageError as error:
        scanned.malformed.append((number, str(error)))
        return leaf, NO_SEQ
    if not isinstance(found, Withheld) or not is_digest(found.withheld):
        scanned.malformed.append((number, "no withheld line as it is written"))
        return leaf, NO_SEQ
    # The tree does not see these bytes: they have to be exactly what they must be.
    wrong = "" if line.rstrip(b" ") == encode_entry(found) else "not as it is written"
    scanned.withheld.append((number, wrong))
    return bytes.fromhex(found.withheld), found.seq
