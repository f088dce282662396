"""What anything that looks at a ledger needs of it.

`OpenLedger` (ledger.py) is one; so is a damaged ledger that the viewer shows as it was found.
"""

from dataclasses import dataclass
from typing import Protocol

from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import AnyEntry, Withheld
from proctor.ledger.log import LogStore
from proctor.ledger.note import Checkpoint
from proctor.ledger.trial_index import TrialIndex


@dataclass(frozen=True, slots=True)
class SealedTrial:
    """A trial that is in the log."""

    seq: int
    record: str
    """SHA-256 of its record."""
    evidence: str | None
    """SHA-256 over the list of its evidence; None where the entry was withheld."""


class LedgerReader(Protocol):
    """A ledger for reading."""

    @property
    def where(self) -> str:
        """How messages name it."""
        ...

    @property
    def log(self) -> LogStore:
        """Its lines and its checkpoint."""
        ...

    @property
    def artifacts(self) -> ArtifactStore:
        """Its evidence."""
        ...

    @property
    def index(self) -> TrialIndex:
        """What is known of its entries; `refresh` brings it up to the checkpoint."""
        ...

    def refresh(self) -> Checkpoint:
        """Bring the index up to the checkpoint, and give it.

        Raises:
            DamageError: the log does not give what the checkpoint says.
        """
        ...

    def checkpoint(self) -> Checkpoint:
        """What the log was when it was last signed; no signature is checked."""
        ...

    def line(self, seq: int) -> bytes:
        """The line of an entry, as it is stored.

        Raises:
            LedgerError: there is no such entry.
            DamageError: its line is not where the index saw it, or not what was signed.
        """
        ...

    def entry(self, seq: int) -> AnyEntry | Withheld:
        """An entry, or what is left of one that was withheld."""
        ...

    def find_sealed(self, experiment_id: str, trial_id: str) -> SealedTrial | None:
        """The trial of this name, if it is sealed; call `refresh` before."""
        ...
