"""The interface of a ledger for reading.

Implemented by `OpenLedger` (ledger.py), and by the viewer for damaged ledgers.
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
    """Position and digests of a sealed trial."""

    seq: int
    record: str
    """SHA-256 of its record."""
    evidence: str | None
    """SHA-256 over the list of its evidence; None if the entry was withheld."""


class LedgerReader(Protocol):
    """A ledger for reading."""

    @property
    def where(self) -> str:
        """The name of the ledger in messages."""
        ...

    @property
    def log(self) -> LogStore:
        """Its log."""
        ...

    @property
    def artifacts(self) -> ArtifactStore:
        """Its evidence store."""
        ...

    @property
    def index(self) -> TrialIndex:
        """Its index; `refresh` updates it to the checkpoint."""
        ...

    def refresh(self) -> Checkpoint:
        """Update the index to the current checkpoint, and return that checkpoint.

        Raises:
            DamageError: the log does not match the checkpoint.
        """
        ...

    def checkpoint(self) -> Checkpoint:
        """The checkpoint that was signed last; its signature is not checked."""
        ...

    def line(self, seq: int) -> bytes:
        """The stored line of an entry, without its newline.

        Raises:
            LedgerError: there is no such entry.
            DamageError: the line is not at the indexed position, or differs from what was signed.
        """
        ...

    def entry(self, seq: int) -> AnyEntry | Withheld:
        """An entry, or the placeholder of a withheld one."""
        ...

    def find_sealed(self, experiment_id: str, trial_id: str) -> SealedTrial | None:
        """The sealed trial with these ids, or None; call `refresh` first."""
        ...
