"""Reads a log: every line of every segment, hashed, classified and optionally decoded.

For each line, 32 bytes of leaf hash, 4 of length and 8 of sequence number are kept; the lines
themselves are not. Lines are numbered as they were read, whatever sequence numbers they state. What
the result means for the ledger is decided in `verify`.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from proctor.digest import is_digest
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
from proctor.ledger.log import LogStore, Place, segment_name
from proctor.ledger.machines import Machines
from proctor.ledger.row import read_ids
from proctor.ledger.tree import HASH_SIZE, leaf_hash
from proctor.ledger.verification.evidence import NamedEvidence
from proctor.ledger.verification.leaves import Leaves

CHUNK = 1 << 20
"""Bytes read at a time."""
NO_SEQ = -1
"""Sequence number of a line that states none."""

_TRIAL = b'"kind":"trial"'
_KIND_AT = len('{"at":"2000-01-01T00:00:00.000Z",')
_LONGEST = (1 << 32) - 1


@dataclass(slots=True)
class ScannedLog:
    """What was read from the segments of a ledger."""

    evidence: NamedEvidence
    is_decoded: bool = True
    """Whether trials are decoded; entries of other kinds always are."""
    leaves: Leaves = field(default_factory=Leaves)
    """For a withheld line, the leaf hash that its placeholder states."""
    lengths: array[int] = field(default_factory=lambda: array("I"))
    """Bytes of the lines, without newlines."""
    seqs: array[int] = field(default_factory=lambda: array("q"))
    """The sequence numbers that lines state."""
    segments: list[tuple[int, int]] = field(default_factory=list)
    """Every segment that contains lines, with the number of its first line."""
    keys: list[tuple[int, KeyEntry]] = field(default_factory=list)
    withholdings: list[tuple[int, WithholdEntry]] = field(default_factory=list)
    machines: Machines = field(default_factory=Machines)
    unsigned: list[tuple[int, str]] = field(default_factory=list)
    """Entries that a machine did not validly sign, or that do not validly enrol one, and why."""
    withheld: dict[int, str] = field(default_factory=dict)
    """Withheld lines, each with a problem of its placeholder, or ""."""
    malformed: list[tuple[int, str]] = field(default_factory=list)
    faults: list[tuple[int, Fault]] = field(default_factory=list)
    """Well-formed entries that are not admissible."""
    torn: dict[int, int] = field(default_factory=dict)
    """Bytes without a newline at a segment's end, by the line that follows them."""

    def __len__(self) -> int:
        return len(self.lengths)

    def read(self, log: LogStore, segment: int) -> Iterator[int]:
        """Add the lines of a segment; yields the bytes read so far, now and then.

        Raises:
            OSError: the segment cannot be read any further.
        """
        rest, at, is_skipping = b"", 0, False
        while chunk := log.read(Place(segment, at), CHUNK):
            at += len(chunk)
            if is_skipping:
                _, newline, chunk = chunk.partition(b"\n")
                is_skipping = not newline
            *lines, rest = (rest + chunk).split(b"\n")
            if lines and (not self.segments or self.segments[-1][0] != segment):
                self.segments.append((segment, len(self)))
            for line in lines:
                self._add_line(line)
            if len(rest) > LARGEST_ENTRY:
                # Longer than any entry: neither held in memory nor hashed.
                rest, is_skipping = b"", True
                wrong = f"a line of more than {LARGEST_ENTRY:,} bytes"
                self.malformed.append((len(self), wrong))
                self._add(bytes(HASH_SIZE), _LONGEST, NO_SEQ)
            yield at
        if rest:
            self.torn[len(self)] = len(rest)

    def _add(self, leaf: bytes, length: int, seq: int) -> None:
        self.leaves.extend(leaf)
        self.lengths.append(length)
        self.seqs.append(seq)

    def _add_line(self, line: bytes) -> None:
        leaf, seq, number = leaf_hash(line), NO_SEQ, len(self)
        if self.is_decoded or not line.startswith(_TRIAL, _KIND_AT):
            try:
                entry = decode_line(line, "the line")
                if isinstance(entry, Withheld):
                    leaf = self._take_withheld(line, entry, number)
                else:
                    check_written(line, entry, "the line")
                    self._take_entry(entry, number)
                seq = entry.seq
            except DamageError as error:
                self.malformed.append((number, str(error)))
        self._add(leaf, len(line), seq)

    def _take_withheld(self, line: bytes, entry: Withheld, number: int) -> bytes:
        """The leaf hash that a placeholder states."""
        if not is_digest(entry.withheld):
            raise DamageError("not a valid placeholder of a withheld line")
        # The tree does not cover these bytes: they must be exactly the placeholder.
        is_exact = line.rstrip(b" ") == encode_entry(entry)
        self.withheld[number] = "" if is_exact else "not a valid placeholder"
        return bytes.fromhex(entry.withheld)

    def _take_entry(self, entry: AnyEntry, number: int) -> None:
        if isinstance(entry, TrialEntry):
            names = read_ids(entry)
            fault = find_trial_fault(entry, *names)
            if fault is None or not fault.is_id:
                # Whatever else is wrong with it: a duplicate trial is a damage of its own kind.
                self.evidence.identify([(number, *names)])
        else:
            fault = find_fault(entry)
        if fault is not None:
            self.faults.append((number, fault))
            return
        # At once and in order: which machines are enrolled depends on the position.
        wrong = self.machines.find_fault(entry, self.keys[0][1].origin if self.keys else "")
        if wrong is None and isinstance(entry, MachineEntry):
            wrong = self.machines.take(entry)
        if wrong is not None:
            self.unsigned.append((number, wrong))
        match entry:
            case TrialEntry() if entry.evidence:
                files = entry.evidence
                self.evidence.add((number, bytes.fromhex(each.sha256), each.size) for each in files)
            case KeyEntry():
                self.keys.append((number, entry))
            case WithholdEntry():
                self.withholdings.append((number, entry))

    def place_of(self, line: int) -> tuple[Place, int]:
        """The position and length of a line."""
        segment, first = self.segments[self._segment_at(line)]
        offset = sum(self.lengths[first:line]) + line - first
        return Place(segment, offset), self.lengths[line]

    def _segment_at(self, line: int) -> int:
        return bisect_right([first for _, first in self.segments], line) - 1

    def where(self, line: int) -> str:
        """The file of a line, relative to the ledger."""
        at = self._segment_at(line)
        return segment_name(self.segments[at][0] if at >= 0 else 0)
