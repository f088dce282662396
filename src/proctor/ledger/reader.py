"""The interface of a ledger for reading.

Implemented by `OpenLedger` (ledger.py), and by the viewer for damaged ledgers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import AnyEntry, Withheld
from proctor.ledger.log import LogStore
from proctor.ledger.note import Checkpoint, Signer
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


WAITING = -1
"""Position of an entry that waits for a server which could not be reached."""


class Remote(Protocol):
    """The server that owns a ledger; what is on this machine is a copy."""

    @property
    def url(self) -> str:
        """Its address."""
        ...

    @property
    def artifacts(self) -> ArtifactStore:
        """Its evidence: fetched when it is opened."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...

    def check_writable(self, key: Signer) -> None:
        """Refuse a ledger that takes nothing from this machine; enrols it otherwise.

        Raises:
            LedgerError: it is published and read-only, or the token may not write.
        """
        ...

    def fetch(self, ledger: LedgerReader) -> None:
        """Update the copy, and send what waits; a server that cannot be reached is no error.

        Raises:
            DamageError: the server shows another history than before.
            LedgerError: it refuses to answer.
        """

    def submit(self, ledger: LedgerReader, drafts: Sequence[AnyEntry], key: Signer) -> list[int]:
        """Submit entries, signed by this machine's key; returns their positions, or WAITING.

        Raises:
            NotSealedError: the server refuses one; then it has sealed none of them.
            ConflictError: a trial is already sealed with different bytes.
            LedgerError: it refuses to answer.
        """
        ...
