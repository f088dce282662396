"""Damage: what a ledger can be found to have, each kind by its own name.

Nothing here looks for it.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

_LARGEST = 1000
"""Damages of one kind that are kept; a log that is all damage need not fit into memory."""


class DamageKind(StrEnum):
    """How a ledger is not what was signed."""

    EDITED = "edited"
    """An entry has other bytes than those that were signed."""
    TRUNCATED = "truncated"
    """Entries at the end, or at the end of a segment, are cut off."""
    REMOVED = "removed"
    """Entries in the middle are gone."""
    INSERTED = "inserted"
    """A line that was never signed stands among those that were."""
    DUPLICATED = "duplicated"
    """An entry stands in the log once more."""
    REORDERED = "reordered"
    """An entry stands in another place than it was signed in."""
    FORKED = "forked"
    """The log is signed, and is not the one that an older checkpoint was made of."""
    ROLLED_BACK = "rolled-back"
    """An older checkpoint was put in the place of a newer one."""
    MALFORMED = "malformed"
    """A line that was signed as it is, and is no entry."""
    BAD_ID = "bad-id"
    """An entry names an experiment or a trial by what is no id: it could be a path, or misread."""
    DUPLICATE_TRIAL = "duplicate-trial"
    """Two entries are the same trial, or one is said to be two."""
    WITHHELD = "withheld-without-entry"
    """A line was removed, and no entry says so."""
    MISSING_ARTIFACT = "missing-artifact"
    """Evidence that an entry names is not there."""
    ALTERED_ARTIFACT = "altered-artifact"
    """Evidence is not what was sealed, or no plain file."""
    UNREADABLE_SEGMENT = "unreadable-segment"
    """A segment is no plain file, or cannot be read."""
    UNREADABLE_CHECKPOINT = "unreadable-checkpoint"
    """The checkpoint is missing, or no checkpoint."""
    BAD_SIGNATURE = "bad-signature"
    """The key's signature does not fit what it stands under."""
    MISSING_SIGNATURE = "missing-signature"
    """The key has not signed."""
    WRONG_KEY = "wrong-key"
    """The ledger is another key's than the one that is trusted, or names none."""
    BAD_KEY_CHANGE = "bad-key-change"
    """A new key that the former one did not sign for this place, or that was replaced before."""
    FALSE_ATTESTATION = "false-attestation"
    """A signed statement about an experiment that the log contradicts."""
    WRONG_ORIGIN = "wrong-origin"
    """A checkpoint of another log."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong with a ledger."""

    kind: DamageKind
    where: str
    """The file: relative to the ledger, or as the checkpoint was given."""
    message: str
    """A sentence."""
    seq: int | None = None
    """The entry; the first one where there are several in a row."""


@dataclass(slots=True)
class Findings:
    """What was found so far."""

    damages: list[Damage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no damage."""
    counts: Counter[DamageKind] = field(default_factory=Counter)

    def add(self, kind: DamageKind, where: str, message: str, seq: int | None = None) -> None:
        """Take one more; beyond a thousand of a kind they are only counted."""
        self.counts[kind] += 1
        if self.counts[kind] <= _LARGEST:
            self.damages.append(Damage(kind, where, message, seq))

    def note(self, text: str) -> None:
        """Take a remark."""
        self.notes.append(text)

    def unlisted(self) -> list[str]:
        """A sentence for every kind of which not all are listed."""
        return [
            f"{count - _LARGEST} more of the kind {kind.value!r} are not listed"
            for kind, count in self.counts.items()
            if count > _LARGEST
        ]
