"""Keychain: the keys that a log names, each from its entry on, and what they signed.

The first entry names a key; every later one must be signed by the key before it. A checkpoint is
signed by the key that held when the log had that size. Nothing here decides what is damage of the
log itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.errors import KeyFileError, SignatureError
from proctor.ledger.entry import KeyEntry
from proctor.ledger.note import Checkpoint, VerifierKey, parse_verifier_key
from proctor.ledger.signature import check_signature, did_sign
from proctor.ledger.verification.damage import DamageKind, Findings


@dataclass(frozen=True, slots=True)
class Keychain:
    """The keys of a log, and the one that is trusted."""

    keys: tuple[tuple[int, VerifierKey], ...]
    """Every key with the place of its entry, in order."""
    given: VerifierKey | None = None

    @property
    def is_given_known(self) -> bool:
        """Whether the log names the key that was given; it does where none was."""
        return self.given is None or any(key == self.given for _, key in self.keys)

    @property
    def trusted(self) -> VerifierKey | None:
        """The key that all rests on: the given one, else the first; None where there is none."""
        if self.given is not None:
            return self.given
        return self.keys[0][1] if self.keys and self.keys[0][0] == 0 else None

    def key_at(self, size: int) -> VerifierKey | None:
        """The key that signs a log of this size."""
        if not self.is_given_known:
            return self.given
        held = [key for seq, key in self.keys if seq < size]
        return held[-1] if held else self.trusted


def read_keychain(
    entries: Sequence[tuple[int, KeyEntry]], given: VerifierKey | None, findings: Findings
) -> Keychain:
    """The keys that entries name; a change that the former key did not sign is damage."""
    keys: list[tuple[int, VerifierKey]] = []
    for seq, entry in sorted(dict(entries).items()):
        try:
            key = parse_verifier_key(entry.key)
        except KeyFileError as error:
            findings.add(
                DamageKind.BAD_KEY_CHANGE, "entries", f"entry {seq} names no key: {error}", seq
            )
            continue
        if keys and not did_sign(keys[-1][1], entry):
            former = _short(keys[-1][1])
            message = f"entry {seq} names the key {_short(key)}, which {former} did not sign"
            findings.add(DamageKind.BAD_KEY_CHANGE, "entries", message, seq)
            continue
        keys.append((seq, key))
    return Keychain(tuple(keys), given)


def _short(key: VerifierKey) -> str:
    return f"{key.name}+{key.key_id.hex()}"


def is_signed(checkpoint: Checkpoint, keys: Keychain, where: str, findings: Findings) -> bool:
    """Whether the key that held at its size signed a checkpoint; it is damage where it did not."""
    key = keys.key_at(checkpoint.tree.size)
    if key is None:
        return False
    lines = [(line.name, line.key_id) for line in checkpoint.signatures]
    try:
        check_signature(checkpoint, key, where)
    except SignatureError as error:
        is_there = (key.name, key.key_id) in lines
        kind = DamageKind.BAD_SIGNATURE if is_there else DamageKind.MISSING_SIGNATURE
        findings.add(kind, where, str(error))
        return False
    if len(lines) > 1:
        others = f"{len(lines) - 1} more signature{'s' if len(lines) > 2 else ''}"
        findings.note(f"{where}: {others} on it, by others or once more, not checked")
    return True
