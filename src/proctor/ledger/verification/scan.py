"""Reads the segments of a log piece by piece: hashes, classifies and optionally decodes lines.

What the result means for the ledger is decided in `verify`.
"""

import sqlite3
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

import msgspec

from proctor.digest import is_digest, sha256_slices
from proctor.errors import DamageError
from proctor.ledger.admission import Fault, check_written, find_fault, find_trial_fault
from proctor.ledger.entry import (
    LARGEST_ENTRY,
    AnyEntry,
    KeyEntry,
    MachineEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    decode_line,
    encode_entry,
)
from proctor.ledger.log import LogStore, Place
from proctor.ledger.row import (
    Columns,
    RemarkColumns,
    kind_and_time,
    read_ids,
    read_row,
    remark_columns,
    to_columns,
)
from proctor.ledger.tree import HASH_SIZE, LEAF_PREFIX, leaf_hash
from proctor.ledger.verification.columns import EntryColumns, has_columns

PIECE = 2 << 20
"""Bytes of a piece."""
NO_SEQ = -1
"""Sequence number of a line that states none."""

_TRIAL = b'"kind":"trial"'
_KIND_AT = len('{"at":"2000-01-01T00:00:00.000Z",')
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
    entries: list[tuple[int, KeyEntry | WithholdEntry]] = field(default_factory=list)
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
    start, stop, length = place.offset, place.offset + PIECE, _CHUNK
    while start < stop:
        # An incomplete line at the end is read again, which is cheaper than joining it.
        data = log.read(Place(place.segment, start), length)
        whole = _scan_lines(data, stop - start, scanned, is_decoded=is_decoded)
        if whole:
            start += whole
        elif len(data) == length <= LARGEST_ENTRY:
            length *= 2
        else:
            _take_last(data, scanned)
            is_too_long = len(data) > LARGEST_ENTRY
            return _skip_line(log, Place(place.segment, start + len(data))) if is_too_long else None
    return start


def _skip_line(log: LogStore, place: Place) -> int | None:
    """Where the next line begins; None if there is none."""
    at = place.offset
    while chunk := log.read(Place(place.segment, at), _CHUNK):
        if (found := chunk.find(b"\n")) >= 0:
            return at + found + 1
        at += len(chunk)
    return None


def _scan_lines(data: bytes, limit: int, scanned: Scanned, *, is_decoded: bool) -> int:
    """Add the complete lines that begin before the limit; returns their bytes."""
    cuts = _cut(data, limit)
    first, seqs = len(scanned.lengths), [NO_SEQ] * len(cuts)
    leaves = sha256_slices(data, cuts, LEAF_PREFIX)
    for number, (begin, end) in enumerate(cuts):
        if not data.startswith(_TRIAL, begin + _KIND_AT):
            leaves[number], seqs[number] = _take_other(
                data[begin:end], leaves[number], first + number, scanned
            )
        elif is_decoded:
            seqs[number] = _take_trial(data[begin:end], first + number, scanned)
    scanned.leaves += b"".join(leaves)
    scanned.lengths.extend([end - begin for begin, end in cuts])
    scanned.seqs.extend(seqs)
    return cuts[-1][1] + 1 if cuts else 0


def _cut(data: bytes, limit: int) -> list[tuple[int, int]]:
    """Begin and end of the complete lines that begin before the limit."""
    cuts: list[tuple[int, int]] = []
    begin, find = 0, data.find
    while begin < limit and (end := find(b"\n", begin)) >= 0:
        cuts.append((begin, end))
        begin = end + 1
    return cuts


def _take_last(data: bytes, scanned: Scanned) -> None:
    """Add a line that does not end."""
    if not data:
        return  # the segment was truncated in between
    if len(data) <= LARGEST_ENTRY:
        scanned.torn = Torn(leaf_hash(data), leaf_hash(data[:-1]), len(data))
        return
    # Longer than any entry: neither held in memory nor hashed.
    scanned.malformed.append((len(scanned.lengths), f"a line of more than {LARGEST_ENTRY:,} bytes"))
    scanned.leaves += _NO_LEAF
    scanned.lengths.append(_LONGEST)
    scanned.seqs.append(NO_SEQ)


def _take_trial(line: bytes, number: int, scanned: Scanned) -> int:
    try:
        entry = _DECODER.decode(line)
        check_written(line, entry, "the line")
        row = read_row(entry) if scanned.is_compared else None
        names = (row.experiment_id, row.trial_id) if row is not None else read_ids(entry)
        fault = find_trial_fault(entry, *names)
    except (msgspec.MsgspecError, DamageError, RecursionError, UnicodeDecodeError) as error:
        scanned.malformed.append((number, str(error)))
        return NO_SEQ
    if fault is None or not fault.is_id:
        # Whatever else is wrong with it: a duplicate trial is a damage of its own kind.
        scanned.identities.append((number, *names))
    if fault is not None:
        scanned.faults.append((number, fault))
        return entry.seq
    if row is not None:
        scanned.trials.append(to_columns(row))
        scanned.kinds[number] = kind_and_time(entry)
    if entry.signed is not msgspec.UNSET:
        scanned.submitted.append((number, entry))
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
    if isinstance(entry, KeyEntry | WithholdEntry):
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
