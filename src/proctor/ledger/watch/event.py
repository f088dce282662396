"""What a monitor can see in a ledger, each kind by its own name."""

from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What appeared."""

    FIRST_SEEN = "first-seen"
    """The ledger was not watched before; no alarm."""
    FORKED = "forked"
    """The log is signed and contradicts a checkpoint that was seen."""
    ROLLED_BACK = "rolled-back"
    """The log is signed and ends before a checkpoint that was seen."""
    DUPLICATE_IDENTITY = "duplicate-identity"
    """A second entry for an experiment and trial id that are sealed already."""
    WITHHELD = "withheld"
    """Bytes of a trial were taken out."""
    WITHHELD_UNNAMED = "withheld-unnamed"
    """Bytes were taken out, and the entry does not say of which trial."""
    SUPERSEDED = "superseded"
    """Another trial stands in for one that has a reward."""
    KEY_CHANGED = "key-changed"
    """Another key signs from here on; the former one signed it."""
    WRONG_KEY = "wrong-key"
    """Signed by a key that does not follow from the one that was seen or given."""
    REPLACED = "replaced"
    """Another log stands in the ledger's place."""
    DAMAGED = "damaged"
    """The log is not what its checkpoint signs, or an entry is not what it should be."""

    @property
    def is_alarm(self) -> bool:
        """Whether somebody should look."""
        return self is not EventKind.FIRST_SEEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that appeared in a ledger."""

    kind: EventKind
    ledger: str
    """The directory, as it was given."""
    origin: str | None
    message: str
    """A sentence."""
    seq: int | None = None
    """The entry, where it is one."""
    evidence: tuple[str, ...] = ()
    """Files that were kept: signed checkpoints that contradict each other."""
