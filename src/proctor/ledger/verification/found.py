"""The log as it was found: all lines of all segments, and what the pieces of it said.

    32 bytes of leaf, 4 of length and 8 of number are kept for a line; lines themselves are not.

A line's number here is its place among those that were found, whatever it says of itself.
"""

from array import array
from bisect import bisect_right
from dataclasses import dataclass, field

from proctor.ledger.admission import Fault
from proctor.ledger.entry import AttestEntry, KeyEntry, WithholdEntry
from proctor.ledger.log import Place, segment_name
from proctor.ledger.verification.evidence import NamedEvidence
from proctor.ledger.verification.leaves import Leaves
from proctor.ledger.verification.scan import Scanned, Torn


@dataclass(slots=True)
class FoundLog:
    """What is in the segments of a ledger."""

    evidence: NamedEvidence
    leaves: Leaves = field(default_factory=Leaves)
    lengths: array[int] = field(default_factory=lambda: array("I"))
    seqs: array[int] = field(default_factory=lambda: array("q"))
    segments: list[tuple[int, int]] = field(default_factory=list)
    """Every segment that holds lines, with its first one."""
    keys: list[tuple[int, KeyEntry]] = field(default_factory=list)
    withholdings: list[tuple[int, WithholdEntry]] = field(default_factory=list)
    attestations: list[tuple[int, AttestEntry]] = field(default_factory=list)
    withheld: dict[int, str] = field(default_factory=dict)
    """Lines that were taken out, with what is wrong with what stands there."""
    malformed: list[tuple[int, str]] = field(default_factory=list)
    faults: list[tuple[int, Fault]] = field(default_factory=list)
    torn: dict[int, Torn] = field(default_factory=dict)
    """Bytes without a newline at a segment's end, by the line that comes after them."""

    def __len__(self) -> int:
        return len(self.lengths)

    def add(self, piece: Scanned) -> None:
        """Take in the next piece."""
        first = len(self)
        if not self.segments or self.segments[-1][0] != piece.segment:
            self.segments.append((piece.segment, first))
        self.leaves.extend(piece.leaves)
        self.lengths.extend(piece.lengths)
        self.seqs.extend(piece.seqs)
        for number, entry in piece.entries:
            if isinstance(entry, KeyEntry):
                self.keys.append((first + number, entry))
            elif isinstance(entry, AttestEntry):
                self.attestations.append((first + number, entry))
            else:
                self.withholdings.append((first + number, entry))
        self.withheld.update((first + number, wrong) for number, wrong in piece.withheld)
        self.malformed += [(first + number, message) for number, message in piece.malformed]
        self.faults += [(first + number, fault) for number, fault in piece.faults]
        self.evidence.identify((first + number, *names) for number, *names in piece.identities)
        if piece.evidence:
            self.evidence.add((first + line, sha256, size) for line, sha256, size in piece.evidence)
        if piece.torn is not None:
            self.torn[len(self)] = piece.torn

    def place_of(self, line: int) -> tuple[Place, int]:
        """Where a line begins, and how long it is."""
        segment, first = self.segments[self._segment_at(line)]
        offset = sum(self.lengths[first:line]) + line - first
        return Place(segment, offset), self.lengths[line]

    def end_of(self, size: int) -> Place:
        """Where the first lines end, so many."""
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
