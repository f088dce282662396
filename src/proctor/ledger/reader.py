"""The interfaces of a ledger: for reading, and for appending.

Implemented by `OpenLedger` (ledger.py), and for reading by the viewer for damaged ledgers. place.py
opens them.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, Self

from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import AnyEntry, EvidenceFile, Withheld
from proctor.ledger.log import LogStore
from proctor.ledger.note import Checkpoint, Signer
from proctor.ledger.trial_index import TrialIndex

WAITING = -1
"""Position of an entry that waits for a server which could not be reached."""


@dataclass(frozen=True, slots=True)
class SealedTrial:
    """Position and digests of a sealed trial."""

    seq: int
    """WAITING if it is not sealed yet."""
    record: str
    """SHA-256 of its record."""
    evidence: str | None
    """SHA-256 over the list of its evidence; None if the entry was withheld."""
    waiting: tuple[EvidenceFile, ...] = ()
    """The evidence of one that waits: there is no entry that has it."""


class LedgerReader(Protocol):
    """A ledger for reading; leaving its `with` block closes it."""

    @property
    def where(self) -> str:
        """The name of the ledger in messages."""

    @property
    def log(self) -> LogStore:
        """Its log."""

    @property
    def artifacts(self) -> ArtifactStore:
        """Its evidence store."""

    @property
    def index(self) -> TrialIndex:
        """Its index; `refresh` updates it to the checkpoint."""

    def refresh(self) -> Checkpoint:
        """Update the index to the current checkpoint, and return that checkpoint.

        Raises:
            DamageError: the log does not match the checkpoint.
        """

    def checkpoint(self) -> Checkpoint:
        """The checkpoint that was signed last; its signature is not checked."""

    def line(self, seq: int) -> bytes:
        """The stored line of an entry, without its newline.

        Raises:
            LedgerError: there is no such entry.
            DamageError: the line is not at the indexed position, or differs from what was signed.
        """

    def entry(self, seq: int) -> AnyEntry | Withheld:
        """An entry, or the placeholder of a withheld one."""

    def find_sealed(self, experiment_id: str, trial_id: str) -> SealedTrial | None:
        """The sealed trial with these ids, or None; call `keep_up` or `refresh` first.

        In a copy that was opened for writing, also one that waits for the server.
        """

    def keep_up(self) -> None:
        """Refresh the index if another process, or the server, has appended since."""

    def close(self) -> None:
        """Close the index, and the connection to a server."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class LedgerWriter(LedgerReader, Protocol):
    """A ledger to which entries are appended."""

    def check_key(self) -> None:
        """Refuse to write without the ledger's key, or after a checkpoint that it did not sign.

        Raises:
            KeyFileError: there is no key, or it is not the ledger's.
            SignatureError: the checkpoint is not signed by the key.
        """

    def writing(self) -> AbstractContextManager[None]:
        """Hold the write lock, with the end of the log known.

        Raises:
            BusyError: another process holds the lock for too long.
        """

    def append(self, drafts: Sequence[AnyEntry]) -> list[int]:
        """Append entries, signed and durable on return; returns their positions in the log.

        Call it inside `writing`. `at` and `seq` of the drafts are filled in here.

        Raises:
            LedgerError: an entry is too large.
            OSError: they cannot be written; then none of them is in the log.
        """


class Remote(Protocol):
    """The server that owns a ledger; what is on this machine is a copy."""

    @property
    def url(self) -> str:
        """Its address."""

    @property
    def artifacts(self) -> ArtifactStore:
        """Its evidence: fetched when it is opened."""

    def close(self) -> None:
        """End the connection."""

    def check_writable(self, key: Signer) -> None:
        """Refuse a ledger that takes nothing from this machine; enrols it otherwise.

        Raises:
            LedgerError: it is published and read-only, or the token may not write.
        """

    def fetch(self, ledger: LedgerReader, key: Signer | None) -> None:
        """Send what waits, if there is a key, and update the copy.

        A server that cannot be reached is no error.

        Raises:
            DamageError: the server shows another history than before.
            LedgerError: it refuses to answer.
        """

    def find_waiting(self, experiment_id: str, trial_id: str) -> SealedTrial | None:
        """The trial with these ids that waits for the server, or None.

        Raises:
            LedgerError: what waits cannot be read.
        """

    def submit(self, ledger: LedgerReader, drafts: Sequence[AnyEntry], key: Signer) -> list[int]:
        """Submit entries, signed by this machine's key; returns their positions, or WAITING.

        Raises:
            NotSealedError: the server refuses one; then it has sealed none of them.
            ConflictError: a trial is already sealed with different bytes.
            LedgerError: it refuses to answer.
        """
