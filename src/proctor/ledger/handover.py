"""Handovers: the keys of a log, each introduced by an entry that the key before it signed.

A handover signs the origin, its position in the log, the root of the log before it, and the new
key, so that it is valid nowhere else. Handovers by older versions sign only the origin and the new
key; they are accepted until the first handover of the present form. A replaced key never signs
again.

Callers pass entries whose positions are proven. Which key to trust is not decided here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from proctor.errors import DamageError, KeyFileError
from proctor.ledger.entry import KeyEntry
from proctor.ledger.note import VerifierKey, parse_verifier_key
from proctor.ledger.signature import did_sign


@dataclass(frozen=True, slots=True)
class Handover:
    """A key entry, and the log before it."""

    entry: KeyEntry
    root: bytes | None
    """Root of the tree before it, as computed by the reader; None if unknown."""

    @property
    def is_bound(self) -> bool:
        """Whether it is bound to its position."""
        return self.entry.root is not msgspec.UNSET


@dataclass(slots=True)
class Chain:
    """The keys of a log up to where it was read."""

    keys: list[VerifierKey]
    is_bound: bool = False
    """Whether a handover was bound to its position; all later ones must be too."""

    def take(self, handover: Handover) -> str | None:
        """Add the key of the next key entry; returns the reason if the entry is invalid."""
        entry = handover.entry
        try:
            key = parse_verifier_key(entry.key)
        except KeyFileError as error:
            return f"does not name a valid key: {error}"
        # Two spellings of one key would be two names for it.
        if str(key) != entry.key:
            return "names a key that is not in the canonical form"
        if self.keys and (fault := self._find_fault(key, handover)):
            return fault
        self.keys.append(key)
        self.is_bound = self.is_bound or handover.is_bound
        return None

    def _find_fault(self, key: VerifierKey, handover: Handover) -> str | None:
        entry, former = handover.entry, self.keys[-1]
        if any(each.public == key.public for each in self.keys):
            return f"names the key {short_name(key)}, which signed before and was replaced"
        if self.is_bound and not handover.is_bound:
            return f"names the key {short_name(key)} without a position, as only older versions did"
        if not did_sign(former, entry):
            return f"names the key {short_name(key)}, which {short_name(former)} did not sign"
        if handover.is_bound and handover.root is not None and handover.root.hex() != entry.root:
            return f"names the key {short_name(key)} for another log: the root before it differs"
        return None


def follow_handovers(handovers: Iterable[Handover], origin: str) -> list[VerifierKey]:
    """The keys of a log, oldest first.

    Raises:
        DamageError: there is no key, it belongs to another log, or a handover is invalid.
    """
    chain = Chain([])
    for handover in sorted(handovers, key=lambda found: found.entry.seq):
        entry = handover.entry
        if entry.origin != origin:
            raise DamageError(f"entry {entry.seq} names a key of {entry.origin!r}, not {origin!r}")
        if not chain.keys and entry.seq != 0:
            raise DamageError("the first entry, which names the ledger's key, is missing")
        if fault := chain.take(handover):
            raise DamageError(f"entry {entry.seq} {fault}")
    if not chain.keys:
        raise DamageError("no entry names the ledger's key")
    return chain.keys


def follow_keys(key: VerifierKey, keys: Sequence[VerifierKey]) -> VerifierKey:
    """The last key of a log if the trusted key is one of its keys; else the trusted key itself."""
    return keys[-1] if key in keys else key


def short_name(key: VerifierKey) -> str:
    """Name and key id of a key."""
    return f"{key.name}+{key.key_id.hex()}"
