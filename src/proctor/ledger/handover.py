"""Handovers: the keys of a log, each named by an entry that the key before it signed.

A handover signs the origin, its place in the log, the root of the log before it, and the new key:
it fits nowhere else. Those of older versions sign the origin and the new key alone; they count as
long as no later form came before them. A key that was replaced never signs again.

The reader of a log gives the entries at their proven places. Nothing here says which key to trust.
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
    """A key entry, and what the log was before it."""

    entry: KeyEntry
    root: bytes | None
    """Root of the tree before it, as the reader worked it out; None where that is not known."""

    @property
    def is_bound(self) -> bool:
        """Whether it is of the form that binds its place."""
        return self.entry.root is not msgspec.UNSET


@dataclass(slots=True)
class Chain:
    """The keys of a log as far as it was read."""

    keys: list[VerifierKey]
    is_bound: bool = False
    """Whether a handover bound its place; all later ones have to."""

    def take(self, handover: Handover) -> str | None:
        """Take the next key entry; why it changes nothing, where it does not."""
        entry = handover.entry
        try:
            key = parse_verifier_key(entry.key)
        except KeyFileError as error:
            return f"names no key: {error}"
        if str(key) != entry.key:
            return "names a key that is not written as keys are"
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
            return f"names the key {short_name(key)} for no place, as only older versions did"
        if not did_sign(former, entry):
            return f"names the key {short_name(key)}, which {short_name(former)} did not sign"
        if handover.is_bound and handover.root is not None and handover.root.hex() != entry.root:
            return f"names the key {short_name(key)} for another log: the root before it differs"
        return None


def follow_handovers(handovers: Iterable[Handover], origin: str) -> list[VerifierKey]:
    """The keys of a log, the first one first.

    Raises:
        DamageError: there is none, it is another log's, or one does not follow from the one before.
    """
    chain = Chain([])
    for handover in sorted(handovers, key=lambda found: found.entry.seq):
        entry = handover.entry
        if entry.origin != origin:
            raise DamageError(f"entry {entry.seq} names a key of {entry.origin!r}, not {origin!r}")
        if not chain.keys and entry.seq != 0:
            raise DamageError("the first entry, which names the ledger's key, is not there")
        if fault := chain.take(handover):
            raise DamageError(f"entry {entry.seq} {fault}")
    if not chain.keys:
        raise DamageError("no entry names the ledger's key")
    return chain.keys


def follow_keys(key: VerifierKey, keys: Sequence[VerifierKey]) -> VerifierKey:
    """The key that signs in place of a trusted one: the last of its log; itself in no log."""
    return keys[-1] if key in keys else key


def short_name(key: VerifierKey) -> str:
    """Name and key id."""
    return f"{key.name}+{key.key_id.hex()}"
