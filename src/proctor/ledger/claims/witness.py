"""A witness: cosigns a checkpoint only if it extends the last one seen of that log.

The rules are those of C2SP's tlog-witness. The log's key is known beforehand; a checkpoint of the
same size must have the same root; a smaller one is refused; growth is proven by the log itself or
by a consistency proof. The new checkpoint is stored, durably and under a lock, before its
cosignature is written, so that concurrent requests cannot get both sides of a fork signed.

Two signed checkpoints that contradict each other are kept as evidence. Ledgers are only read.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from proctor.errors import DamageError, ForkError, LedgerError, NoteError, SignatureError
from proctor.files import write_atomic
from proctor.ledger.claims.document import load_document
from proctor.ledger.claims.proof import (
    ConsistencyProof,
    load_checkpoint,
    parse_proof,
    proven_growth,
)
from proctor.ledger.entry import KeyEntry, decode_line
from proctor.ledger.keys import SigningKey, cosign
from proctor.ledger.log import FileLog, read_lines
from proctor.ledger.memory import Memory, Seen
from proctor.ledger.note import LARGEST_NOTE, Checkpoint, VerifierKey
from proctor.ledger.signature import check_signature
from proctor.ledger.tree import root_of
from proctor.ledger.upkeep import leaf_of
from proctor.ledger.verification.damage import Findings
from proctor.ledger.verification.keychain import Keychain, read_keychain

# Cosigning a copy of a checkpoint. A cosignature states: I saw this checkpoint at this time, and it
# extends what I had seen before.


@dataclass(frozen=True, slots=True)
class Cosigned:
    """A checkpoint with a cosignature."""

    checkpoint: Checkpoint
    time: int
    """When it was cosigned, in Unix seconds."""
    is_new: bool
    """False if the same key had cosigned it already."""


def check_copy(path: Path) -> None:
    """Refuse the checkpoint inside a ledger, which every append replaces.

    Raises:
        LedgerError: it is one.
    """
    place = path.resolve()
    if place.name == "checkpoint" and (place.parent / "entries").is_dir():
        raise LedgerError(
            f"{path}: the ledger's own checkpoint, which the next append replaces; save a copy "
            f"with `proctor ledger checkpoint --ledger {place.parent} -o FILE` and cosign that"
        )


@dataclass(frozen=True, slots=True)
class LogRead:
    """A log as read from its lines, without the index, which proves nothing."""

    leaves: list[bytes]
    keys: list[tuple[int, KeyEntry]]
    """The keys under the checkpoint, by position."""

    def root_at(self, size: int) -> bytes:
        """Root of the tree over the first `size` entries."""
        return root_of(self.leaves[:size])


def read_log(directory: Path, size: int, wanted: int) -> LogRead:
    """Read the first entries of a log: at least `size`, and `wanted` if there are that many.

    Raises:
        DamageError: the log is shorter, or has an invalid line.
    """
    found = LogRead([], [])
    for line in islice(read_lines(FileLog(directory)), wanted):
        seq = len(found.leaves)
        where = f"{directory}: entry {seq}"
        entry = decode_line(line.data, where)
        found.leaves.append(leaf_of(line.data, entry))
        if isinstance(entry, KeyEntry) and seq < size:
            found.keys.append((seq, entry))
    if len(found.leaves) < size:
        raise DamageError(
            f"{directory}: has {len(found.leaves):,} entries; the checkpoint signs {size:,}"
        )
    return found


def load_copy(path: Path) -> Checkpoint:
    """Load the checkpoint to be cosigned.

    Raises:
        LedgerError: it is inside a ledger, or cannot be read.
        NoteError: it is not a checkpoint, or not signed.
    """
    check_copy(path)
    checkpoint = load_checkpoint(str(path))
    if not checkpoint.signatures:
        raise NoteError(f"{path}: not signed; only checkpoints signed by their log are cosigned")
    return checkpoint


def cosign_copy(path: Path, checkpoint: Checkpoint, key: SigningKey, time: int) -> Cosigned:
    """Add a cosignature to a copy of a checkpoint, unless it has one by the same key.

    Raises:
        LedgerError: it cannot be written.
        NoteError: it is full.
        SignatureError: it has an invalid cosignature by the same key.
    """
    name = (key.name, key.cosigner.key_id)
    if any((line.name, line.key_id) == name for line in checkpoint.signatures):
        before = check_signature(checkpoint, key.cosigner, str(path))
        return Cosigned(checkpoint, before or 0, is_new=False)
    cosigned = cosign(checkpoint, key, time)
    if len(data := cosigned.render()) > LARGEST_NOTE:
        raise NoteError(f"{path}: no room for one more signature")
    try:
        write_atomic(path.resolve(), data)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be written: {error.strerror}") from error
    return Cosigned(cosigned, time, is_new=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WitnessInput:
    """What is passed to a witness along with a checkpoint."""

    log_key: VerifierKey | None = None
    """The log's public key, which a person vouches for; needed at first contact."""
    ledger: Path | None = None
    """The ledger itself."""
    proof: str | None = None
    """A consistency proof's file."""


def witness_copy(
    path: Path,
    memory: Memory,
    shown: WitnessInput,
    find_key: Callable[[], SigningKey],
    time: int,
) -> Cosigned:
    """Cosign a copy of a checkpoint if it extends what was seen; it is stored first."""
    checkpoint = load_copy(path)
    with memory.locked():
        seen = memory.find(checkpoint.origin)
        accepted = _Judge(checkpoint, memory, shown, str(path)).accept(seen)
        # Only now: a refused checkpoint must not create a key.
        key = find_key()
        memory.keep(accepted)
        return cosign_copy(path, checkpoint, key, time)


@dataclass(frozen=True, slots=True)
class _Judge:
    """The decision about one checkpoint."""

    checkpoint: Checkpoint
    memory: Memory
    shown: WitnessInput
    where: str

    def accept(self, seen: Seen | None) -> Seen:
        """What to store once the checkpoint is cosigned."""
        log = self._read_log(seen)
        chain = Keychain(())
        if log is not None:
            chain = read_keychain(log.keys, None, Findings(), log.root_at)
        if seen is not None and not self._is_same_log(seen, chain):
            seen = None
        keys = self._find_keys(seen, chain)
        signer = self._find_signer(keys)
        if log is not None and log.root_at(self.checkpoint.tree.size) != self.checkpoint.tree.root:
            raise DamageError(
                f"{self.shown.ledger}: its first {self.checkpoint.tree.size:,} entries are not "
                "those of the checkpoint; it is not cosigned"
            )
        if seen is not None:
            self._check_growth(seen.checkpoint, log)
        if self.shown.proof is not None:
            self._check_proof(self.shown.proof, seen)
        if signer != keys[-1]:
            raise SignatureError(
                f"{self.where}: signed by {signer}, which {keys[-1]} replaced; it is not cosigned"
            )
        is_given = self.shown.log_key is not None or (seen is not None and seen.is_key_given)
        return Seen(checkpoint=self.checkpoint, keys=tuple(keys), is_key_given=is_given)

    def _read_log(self, seen: Seen | None) -> LogRead | None:
        if self.shown.ledger is None:
            return None
        wanted = max(self.checkpoint.tree.size, seen.checkpoint.tree.size if seen else 0)
        return read_log(self.shown.ledger, self.checkpoint.tree.size, wanted)

    def _is_same_log(self, seen: Seen, chain: Keychain) -> bool:
        """Whether what was seen is of the same log.

        A monitor takes a log's key from the log, so that a stranger may have claimed its origin
        first. In that case the key that a person names decides.
        """
        log_key = self.shown.log_key
        if log_key is None or log_key in seen.keys:
            return True
        named = [key for _, key in chain.keys]
        if log_key in named and seen.keys[-1] in named:
            return True
        if not seen.is_key_given:
            return False
        raise LedgerError(
            f"{self.where}: this witness knows {self.checkpoint.origin!r} by the key "
            f"{seen.keys[-1]}, not by {log_key}; if the log changed its key, pass --ledger"
        )

    def _find_keys(self, seen: Seen | None, chain: Keychain) -> list[VerifierKey]:
        """The keys from one that a person named up to the one that must have signed."""
        named = seen is not None and seen.is_key_given
        anchor = seen.keys[-1] if seen is not None and named else self.shown.log_key
        if anchor is None:
            raise LedgerError(
                f"{self.where}: first contact with {self.checkpoint.origin!r}: pass --log-key PUB, "
                "the log's public key as its owner gave it to you (`proctor ledger key` prints it)"
            )
        before = list(seen.keys) if seen is not None and anchor in seen.keys else [anchor]
        named_keys = [key for _, key in chain.keys]
        if anchor in named_keys:
            at = chain.key_at(self.checkpoint.tree.size)
            until = named_keys.index(at) if at in named_keys else -1
            before += named_keys[named_keys.index(anchor) + 1 : until + 1]
        return before

    def _find_signer(self, keys: Sequence[VerifierKey]) -> VerifierKey:
        """The last of the log's keys that signed; an earlier one signed a fork or an old state."""
        for key in reversed(keys):
            if any(
                (key.name, key.key_id) == (s.name, s.key_id) for s in self.checkpoint.signatures
            ):
                check_signature(self.checkpoint, key, self.where)
                return key
        check_signature(self.checkpoint, keys[-1], self.where)
        return keys[-1]

    def _check_growth(self, seen: Checkpoint, log: LogRead | None) -> None:
        old, new = seen.tree, self.checkpoint.tree
        if old.size == new.size:
            if old.root != new.root:
                self._refuse(seen, f"two histories of {new.size:,} entries are signed")
            return
        if log is not None and len(log.leaves) >= old.size and log.root_at(old.size) != old.root:
            self._refuse(seen, f"the first {old.size:,} entries were rewritten")
        if new.size < old.size:
            if log is not None and len(log.leaves) >= old.size:
                raise DamageError(
                    f"{self.where}: an earlier state of the log ({new.size:,} entries) than this "
                    f"witness has seen ({old.size:,}); save a new copy and cosign that"
                )
            self._refuse(seen, f"the log went back from {old.size:,} to {new.size:,} entries")
        if log is None and self.shown.proof is None:
            raise LedgerError(
                f"{self.where}: this witness has seen {old.size:,} entries; pass --ledger DIR or "
                f"--proof FILE (`proctor ledger prove --since`) to show that the {new.size:,} "
                "extend them"
            )

    def _check_proof(self, path: str, seen: Seen | None) -> None:
        proof = parse_proof(load_document(path), path)
        if not isinstance(proof, ConsistencyProof):
            raise LedgerError(f"{path}: an inclusion proof; expected a consistency proof")
        older, newer = proven_growth(proof, path)
        wanted = seen.checkpoint.tree if seen else older.tree
        if (older.tree, newer.tree) != (wanted, self.checkpoint.tree):
            raise LedgerError(
                f"{path}: from {older.tree.size:,} to {newer.tree.size:,} entries; expected from "
                f"the {wanted.size:,} that were seen (root {wanted.root.hex()}) to the "
                f"{self.checkpoint.tree.size:,} of the checkpoint"
            )

    def _refuse(self, seen: Checkpoint, why: str) -> None:
        kept = self.memory.keep_evidence(seen, self.checkpoint)
        raise ForkError(
            f"{self.where}: {self.checkpoint.origin!r}: {why}; it is not cosigned. Both signed "
            f"checkpoints are kept: {kept[0]} and {kept[1]}"
        )
