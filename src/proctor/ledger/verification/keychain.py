"""The keys that a log names, each valid from its entry on, and their signatures on checkpoints.

The first entry names a key; every later key must be signed by the key before it, for its position.
A checkpoint must be signed by the key that was valid at its size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proctor.errors import SignatureError
from proctor.ledger.entry import KeyEntry
from proctor.ledger.note import Checkpoint, VerifierKey
from proctor.ledger.signature import check_signature, take_key
from proctor.ledger.verification.damage import DamageKind, Findings


@dataclass(frozen=True, slots=True)
class Keychain:
    """The keys of a log, and the one that was given."""

    keys: tuple[tuple[int, VerifierKey], ...]
    """Every key with the position of its entry, in order."""
    given: VerifierKey | None = None

    @property
    def is_given_known(self) -> bool:
        """Whether the log names the given key; True if none was given."""
        return self.given is None or any(key == self.given for _, key in self.keys)

    @property
    def trusted(self) -> VerifierKey | None:
        """The key that trust is based on: the given one, else the first; None if there is none."""
        if self.given is not None:
            return self.given
        return self.keys[0][1] if self.keys and self.keys[0][0] == 0 else None

    def key_at(self, size: int) -> VerifierKey | None:
        """The key that signs a log of this size."""
        if not self.is_given_known:
            return self.given
        # The checkpoint that first covers a key's entry is already signed by that key.
        held = [key for seq, key in self.keys if seq < size]
        return held[-1] if held else self.trusted


def read_keychain(
    entries: Sequence[tuple[int, KeyEntry]],
    given: VerifierKey | None,
    findings: Findings,
    root_of: Callable[[int], bytes | None] | None = None,
) -> Keychain:
    """Read the keys that entries name; a key that the former one did not sign is damage.

    `root_of` gives the root of the log at a size, if known.
    """
    chain, keys = list[VerifierKey](), list[tuple[int, VerifierKey]]()
    for seq, entry in sorted(dict(entries).items()):
        if fault := take_key(chain, (entry, root_of(seq) if root_of else None)):
            findings.add(DamageKind.BAD_KEY_CHANGE, "entries", f"entry {seq} {fault}", seq)
            continue
        keys.append((seq, chain[-1]))
    return Keychain(tuple(keys), given)


def is_signed(checkpoint: Checkpoint, keys: Keychain, where: str, findings: Findings) -> bool:
    """Whether the key valid at its size signed a checkpoint; otherwise that is damage."""
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
        findings.note(f"{where}: {others} not checked")
    return True
