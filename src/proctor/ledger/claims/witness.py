"""A witness: cosigns a checkpoint only where it extends the last one that was seen of that log.

The rules are those of C2SP's tlog-witness. The log's key is known beforehand; a checkpoint of the
same size must have the same root; a smaller one is refused; growth is shown by the log itself or by
a consistency proof. The new checkpoint is remembered, durably and under a lock, before its
cosignature is written: two requests at once cannot get both sides of a fork signed.

Two signed checkpoints that contradict each other are kept as evidence. No ledger is written.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import DamageError, ForkError, LedgerError, SignatureError
from proctor.ledger.claims.cosigning import Cosigned, LogRead, cosign_copy, load_copy, read_log
from proctor.ledger.claims.document import load_document
from proctor.ledger.claims.proof import ConsistencyProof, parse_proof, proven_growth
from proctor.ledger.keys import SigningKey
from proctor.ledger.memory import Memory, Seen
from proctor.ledger.note import Checkpoint, VerifierKey
from proctor.ledger.signature import check_signature
from proctor.ledger.verification.damage import Findings
from proctor.ledger.verification.keychain import Keychain, read_keychain


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a witness is shown along with a checkpoint."""

    log_key: VerifierKey | None = None
    """The log's public key, which a person vouches for; needed at first contact."""
    ledger: Path | None = None
    """The ledger itself."""
    proof: str | None = None
    """A consistency proof's file."""


def witness_copy(
    path: Path,
    memory: Memory,
    shown: Shown,
    find_key: Callable[[], SigningKey],
    time: int,
) -> Cosigned:
    """Cosign a copy of a checkpoint if it extends what was seen; remember it first.

    Raises:
        LedgerError: first contact without the log's key, or growth is not shown.
        ForkError: the log signed a history that contradicts the one that was seen.
        DamageError: the signature, the log or the proof is not right.
    """
    checkpoint = load_copy(path)
    with memory.locked():
        seen = memory.find(checkpoint.origin)
        accepted = _Judge(checkpoint, memory, shown, str(path)).accept(seen)
        key = find_key()
        memory.keep(accepted)
        return cosign_copy(path, checkpoint, key, time)


@dataclass(frozen=True, slots=True)
class _Judge:
    """One checkpoint, and what decides about it."""

    checkpoint: Checkpoint
    memory: Memory
    shown: Shown
    where: str

    def accept(self, seen: Seen | None) -> Seen:
        """What is to be remembered once the checkpoint is cosigned."""
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
        """Whether what was seen binds the log that is asked about.

        A monitor takes a log's key from the log: a stranger may have put another's origin there.
        The key that a person names decides then.
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
            f"{seen.keys[-1]}, not by {log_key}; where the log changed its key, --ledger shows it"
        )

    def _find_keys(self, seen: Seen | None, chain: Keychain) -> list[VerifierKey]:
        """The keys that lead from one that a person named to the one that must have signed."""
        named = seen is not None and seen.is_key_given
        anchor = seen.keys[-1] if seen is not None and named else self.shown.log_key
        if anchor is None:
            raise LedgerError(
                f"{self.where}: first contact with {self.checkpoint.origin!r}: pass --log-key PUB, "
                "the log's public key as its owner gave it to you"
            )
        before = list(seen.keys) if seen is not None and anchor in seen.keys else [anchor]
        named_keys = [key for _, key in chain.keys]
        if anchor in named_keys:
            at = chain.key_at(self.checkpoint.tree.size)
            until = named_keys.index(at) if at in named_keys else -1
            before += named_keys[named_keys.index(anchor) + 1 : until + 1]
        return before

    def _find_signer(self, keys: Sequence[VerifierKey]) -> VerifierKey:
        """The last of the log's keys that signed; an earlier one signs a fork, or an old state."""
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
            raise LedgerError(f"{path}: a proof of inclusion; expected a proof of consistency")
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
