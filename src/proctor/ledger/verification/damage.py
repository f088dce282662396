"""The kinds of damage that a ledger can have."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

# Damages listed for each kind; the rest are only counted, to bound memory and output.
_LARGEST = 1000


class DamageKind(StrEnum):
    """How a ledger differs from what was signed."""

    EDITED = "edited"
    """An entry has different bytes than were signed."""
    TRUNCATED = "truncated"
    """Entries at the end, or at the end of a segment, are cut off."""
    REMOVED = "removed"
    """Entries in the middle are missing."""
    INSERTED = "inserted"
    """A line that was never signed is among the signed ones."""
    DUPLICATED = "duplicated"
    """An entry occurs a second time in the log."""
    REORDERED = "reordered"
    """An entry is at another position than it was signed at."""
    FORKED = "forked"
    """The log is signed, but does not extend an older checkpoint."""
    ROLLED_BACK = "rolled-back"
    """The checkpoint was replaced by an older one."""
    MALFORMED = "malformed"
    """A line was signed as it is, but is not a valid entry."""
    BAD_ID = "bad-id"
    """An experiment or trial id that is not a valid name: it could be a path, or be misread."""
    DUPLICATE_TRIAL = "duplicate-trial"
    """Two entries are the same trial, or one entry is named as two trials."""
    WITHHELD = "withheld-without-entry"
    """A line was removed, and no entry withholds it."""
    MISSING_ARTIFACT = "missing-artifact"
    """Evidence that an entry names is missing."""
    ALTERED_ARTIFACT = "altered-artifact"
    """Evidence differs from what was sealed, or is not a plain file."""
    UNREADABLE_SEGMENT = "unreadable-segment"
    """A segment is not a plain file, or cannot be read."""
    UNREADABLE_CHECKPOINT = "unreadable-checkpoint"
    """The checkpoint is missing or invalid."""
    BAD_SIGNATURE = "bad-signature"
    """The key's signature is invalid."""
    MISSING_SIGNATURE = "missing-signature"
    """The key's signature is missing."""
    WRONG_KEY = "wrong-key"
    """The ledger belongs to another key than the trusted one, or names none."""
    BAD_KEY_CHANGE = "bad-key-change"
    """A new key that the former one did not sign for this position, or that was replaced before."""
    BAD_SUBMISSION = "bad-submission"
    """An entry whose machine did not sign it or was not enrolled, or a false enrolment."""
    WRONG_ORIGIN = "wrong-origin"
    """A checkpoint of another log."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage of a ledger."""

    kind: DamageKind
    where: str
    """The file: relative to the ledger, or as the checkpoint was given."""
    message: str
    """A sentence."""
    seq: int | None = None
    """The entry, or the first of several in a row."""


@dataclass(slots=True)
class Findings:
    """The damage and notes found so far."""

    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Worth knowing, but not damage."""
    counts: Counter[DamageKind] = field(default_factory=Counter)

    def add(self, kind: DamageKind, where: str, message: str, seq: int | None = None) -> None:
        """Add a damage; beyond 1,000 of a kind they are only counted."""
        self.counts[kind] += 1
        if self.counts[kind] <= _LARGEST:
            self.damages.append(Damage(kind, where, message, seq))

    def note(self, text: str) -> None:
        """Add a note."""
        self.notes.append(text)

    def unlisted(self) -> list[str]:
        """A sentence for every kind of which some are not listed."""
        return [
            f"{count - _LARGEST} more of the kind {kind.value!r} are not listed"
            for kind, count in self.counts.items()
            if count > _LARGEST
        ]
