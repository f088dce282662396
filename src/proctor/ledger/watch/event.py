"""The kinds of events that a monitor reports."""

from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """What happened."""

    FIRST_SEEN = "first-seen"
    """The ledger was not watched before; not an alarm."""
    FORKED = "forked"
    """The log is signed, but contradicts a checkpoint that was seen."""
    ROLLED_BACK = "rolled-back"
    """The log is signed, but ends before a checkpoint that was seen."""
    DUPLICATE_IDENTITY = "duplicate-identity"
    """A second entry for an experiment and trial id that are sealed already."""
    WITHHELD = "withheld"
    """Bytes of a trial were withheld."""
    WITHHELD_UNNAMED = "withheld-unnamed"
    """Bytes were withheld without naming a trial."""
    SUPERSEDED = "superseded"
    """Another trial replaces one that has a reward."""
    KEY_CHANGED = "key-changed"
    """Another key signs from here on; the former one signed the change."""
    WRONG_KEY = "wrong-key"
    """Signed by a key that does not follow from the one that was seen or given."""
    REPLACED = "replaced"
    """The directory has another log than before."""
    DAMAGED = "damaged"
    """The log is not what its checkpoint signs, or an entry is invalid."""

    @property
    def is_alarm(self) -> bool:
        """Whether a person should be alerted."""
        return self is not EventKind.FIRST_SEEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event in a ledger."""

    kind: EventKind
    ledger: str
    """The directory, as it was given."""
    origin: str | None
    message: str
    """A sentence."""
    seq: int | None = None
    """The entry, if the event is about one."""
    evidence: tuple[str, ...] = ()
    """Stored files: signed checkpoints that contradict each other."""
