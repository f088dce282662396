"""Reads the segments of a log piece by piece: hashes, classifies and optionally decodes lines.

What the result means for the ledger is decided in `verify`.
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
    AnyEntry,
    AttestEntry,
    KeyEntry,
    MachineEntry,
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
"""Bytes of a piece."""
NO_SEQ = -1
"""Sequence number of a line that states none."""

_TRIAL = b'"kind":"trial"'
_KIND_AT = len('\n{"at":"2000-01-01T00:00:00.000Z",')
_WITHHELD = b'{"withheld":'
# Bytes read at a time: small enough to be hashed while still in the processor's cache.
_CHUNK = 1 << 19
_DECODER = msgspec.json.Decoder(TrialEntry)
_LONGEST = (1 << 32) - 1
_NO_LEAF = bytes(HASH_SIZE)


@dataclass(frozen=True, slots=True)
class Torn:
    """The last bytes of a segment, if they do not end with a newline."""

    leaf: bytes
    """Leaf hash if the newline is only missing."""
    leaf_but_last: bytes
    """Leaf hash if the newline was changed into another byte."""
    length: int


@dataclass(slots=True)
class Scanned:
    """What was read from a piece. Its lines are numbered from 0."""

    segment: int
    leaves: bytes = b""
    """Concatenated leaf hashes; for a withheld line, the one that its placeholder states."""
    lengths: array[int] = field(default_factory=lambda: array("I"))
    """Bytes of the lines, without newlines."""
    seqs: array[int] = field(default_factory=lambda: array("q"))
    """The sequence numbers that lines state; empty if trials were not decoded."""
    entries: list[tuple[int, KeyEntry | WithholdEntry | AttestEntry]] = field(default_factory=list)
    submitted: list[tuple[int, AnyEntry]] = field(default_factory=list)
    """Entries that a machine signed, and those that enrol machines, in order."""
    withheld: list[tuple[int, str]] = field(default_factory=list)
    """Withheld lines, each with a problem of its placeholder, or ""."""
    malformed: list[tuple[int, str]] = field(default_factory=list)
    faults: list[tuple[int, Fault]] = field(default_factory=list)
    """Well-formed entries that are not admissible."""
    identities: list[tuple[int, str, str]] = field(default_factory=list)
    """Line, experiment and trial of every trial."""
    evidence: list[tuple[int, bytes, int]] = field(default_factory=list)
    """Line, SHA-256 and size of every evidence file."""
    torn: Torn | None = None
    unreadable: str | None = None
    """Why it could not be read completely."""
    trials: list[Columns] = field(default_factory=list)
    """The rows of trials that the index should have."""
    remarks: list[RemarkColumns] = field(default_factory=list)
    """The rows of remarks that the index should have."""
    kinds: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Kind and time of the lines that are entries."""
    is_compared: bool = False
    """Whether an index is compared with the lines."""
    is_indexed: bool = True
    """Whether the index has the same rows, if it was compared."""


def scan_segment(
    log: LogStore,
    segment: int,
    *,
    is_decoded: bool,
    index: sqlite3.Connection | None = None,
) -> Iterator[Scanned]:
    """Read the lines of a segment, a piece at a time.

    Trials are decoded only if `is_decoded`, other kinds always. With an index, its rows are
    compared with every piece.
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
            evidence = (
                (int.from_bytes(sha256[:8], signed=True), scanned.seqs[number])
                for number, sha256, _ in scanned.evidence
            )
            scanned.is_indexed = has_columns(
                index, entries, scanned.trials, scanned.remarks, evidence
            )
        if scanned.lengths or scanned.torn or scanned.unreadable:
            yield scanned


def _entry_columns(scanned: Scanned, start: int) -> list[EntryColumns]:
    """The rows of lines that the index should have; the first line begins at `start`."""
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
    """Add the lines of a piece; returns where the next piece begins, None at the segment's end."""
    start, stop, buffer = place.offset, place.offset + PIECE, bytearray(_CHUNK)
    while start < stop:
        # An incomplete line at the end of the buffer is read again, which is cheaper than moving
        # it. The first byte of the buffer is reserved for the prefix of the first leaf.
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
    """Where the next line begins; None if there is none."""
    at = place.offset
    while chunk := log.read(Place(place.segment, at), _CHUNK):
        if (found := chunk.find(b"\n")) >= 0:
            return at + found + 1
        at += len(chunk)
    return None


def _scan_lines(
    buffer: bytearray, owned: tuple[int, int], scanned: Scanned, *, is_decoded: bool
) -> int:
    """Add the complete lines of the buffer that begin before the limit; returns their bytes."""
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
    """Begin and end of lines, each with the byte before it.

    That byte, the newline of the previous line, is overwritten by the 0x00 prefix of leaf hashes,
    so that lines need not be copied.
    """
    ends = [0]
    end, stop, find = 0, filled + 1, buffer.find
    while end < limit and (end := find(b"\n", end + 1, stop)) >= 0:
        ends.append(end)
    for end in ends:
        buffer[end] = 0
    return list(pairwise(ends))


def _take_last(buffer: bytearray, length: int, scanned: Scanned) -> None:
    """Add a line that does not end."""
    if length == 0:
        return  # the segment was truncated in between
    if length <= LARGEST_ENTRY:
        line = b"\x00" + buffer[1 : length + 1]
        scanned.torn = Torn(sha256_digest(line), sha256_digest(line[:-1]), length)
        return
    # Longer than any entry: neither held in memory nor hashed.
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
        # Whatever else is wrong with it: a duplicate trial is a damage of its own kind.
        scanned.identities.append((number, experiment_id, trial_id))
    if fault is not None:
        scanned.faults.append((number, fault))
        return entry.seq
    if scanned.is_compared:
        scanned.trials.append(to_columns(read_row(entry)))
        scanned.kinds[number] = kind_and_time(entry)
    if entry.signed is not msgspec.UNSET:
        # A copy: the record is a view of the buffer, which the next lines overwrite.
        scanned.submitted.append((number, _DECODER.decode(bytes(line))))
    for file in entry.evidence:
        scanned.evidence.append((number, bytes.fromhex(file.sha256), file.size))
    return entry.seq


def _take_other(line: bytes, leaf: bytes, number: int, scanned: Scanned) -> tuple[bytes, int]:
    """The leaf hash and sequence number of a line that does not look like a trial."""
    if len(line) > LARGEST_ENTRY:
        scanned.malformed.append((number, f"a line of {len(line):,} bytes"))
        return leaf, NO_SEQ
    if line.startswith(_WITHHELD):
        return _take_withheld(line, leaf, number, scanned)
    try:
        entry = decode_line(line, "the line")
        if isinstance(entry, TrialEntry | Withheld):
            # The prefix did not match, so that proctor did not write it: nothing of it is used.
            scanned.malformed.append((number, "an entry that is not in proctor's encoding"))
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
    if isinstance(entry, MachineEntry) or entry.signed is not msgspec.UNSET:
        scanned.submitted.append((number, entry))
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
        scanned.malformed.append((number, "not a valid placeholder of a withheld line"))
        return leaf, NO_SEQ
    # The tree does not cover these bytes: they must be exactly the placeholder.
    wrong = "" if line.rstrip(b" ") == encode_entry(found) else "not a valid placeholder"
    scanned.withheld.append((number, wrong))
    return bytes.fromhex(found.withheld), found.seq
