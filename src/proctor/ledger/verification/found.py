"""The log as it was read: all lines of all segments, with what was collected from them.

For each line, 32 bytes of leaf hash, 4 of length and 8 of sequence number are kept; the lines
themselves are not. Lines are numbered as they were read, whatever sequence numbers they state.
"""

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from proctor.ledger.admission import Fault
from proctor.ledger.entry import KeyEntry, MachineEntry, WithholdEntry
from proctor.ledger.log import Place, segment_name
from proctor.ledger.machines import Machines
from proctor.ledger.verification.evidence import NamedEvidence
from proctor.ledger.verification.leaves import Leaves
from proctor.ledger.verification.scan import Scanned, Torn


@dataclass(slots=True)
class FoundLog:
    """What was read from the segments of a ledger."""

    evidence: NamedEvidence
    leaves: Leaves = field(default_factory=Leaves)
    lengths: array[int] = field(default_factory=lambda: array("I"))
    seqs: array[int] = field(default_factory=lambda: array("q"))
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
    torn: dict[int, Torn] = field(default_factory=dict)
    """Bytes without a newline at a segment's end, by the line that follows them."""

    def __len__(self) -> int:
        return len(self.lengths)

    def add(self, piece: Scanned) -> None:
        """Add the next piece."""
        first = len(self)
        if not self.segments or self.segments[-1][0] != piece.segment:
            self.segments.append((piece.segment, first))
        self.leaves.extend(piece.leaves)
        self.lengths.extend(piece.lengths)
        self.seqs.extend(piece.seqs)
        for number, entry in piece.entries:
            if isinstance(entry, KeyEntry):
                self.keys.append((first + number, entry))
            else:
                self.withholdings.append((first + number, entry))
        self._check_submitted(first, piece)
        self.withheld.update((first + number, wrong) for number, wrong in piece.withheld)
        self.malformed += [(first + number, message) for number, message in piece.malformed]
        self.faults += [(first + number, fault) for number, fault in piece.faults]
        self.evidence.identify((first + number, *names) for number, *names in piece.identities)
        if piece.evidence:
            self.evidence.add((first + line, sha256, size) for line, sha256, size in piece.evidence)
        if piece.torn is not None:
            self.torn[len(self)] = piece.torn

    def _check_submitted(self, first: int, piece: Scanned) -> None:
        # At once and in order: which machines are enrolled depends on the position.
        origin = self.keys[0][1].origin if self.keys else ""
        for number, entry in piece.submitted:
            fault = self.machines.find_fault(entry, origin)
            if fault is None and isinstance(entry, MachineEntry):
                fault = self.machines.take(entry)
            if fault is not None:
                self.unsigned.append((first + number, fault))

    def place_of(self, line: int) -> tuple[Place, int]:
        """The position and length of a line."""
        segment, first = self.segments[self._segment_at(line)]
        offset = sum(self.lengths[first:line]) + line - first
        return Place(segment, offset), self.lengths[line]

    def end_of(self, size: int) -> Place:
        """The position after the first `size` lines."""
        if size == 0:
            return Place()
        place, length = self.place_of(size - 1)
        return Place(place.segment, place.offset + length + 1)

    def _segment_at(self, line: int) -> int:
        return bisect_right([first for _, first in self.segments], line) - 1

    def where(self, line: int) -> str:
        """The file of a line, relative to the ledger."""
        at = self._segment_at(line)
        number = self.segments[at][0] if at >= 0 else 0
        return segment_name(number)
