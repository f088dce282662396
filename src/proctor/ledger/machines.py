"""Machines that submit entries to a server: each has a key of its own, and signs what it submits.

The owner of a ledger signs that an entry was logged; a machine signs that it ran what the entry
says. An entry of kind `machine` enrols a machine, a later one revokes it. What a machine signs:

    proctor-submission-1
    ORIGIN
    SHA-256 of the entry's line, with `at` empty, `seq` 0 and without `signed`
"""

import base64
import binascii
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from proctor.digest import sha256_hex
from proctor.errors import KeyFileError
from proctor.ledger.entry import AnyEntry, MachineEntry, MachineSignature, encode_entry
from proctor.ledger.note import Algorithm, Signer, VerifierKey, check_name, parse_verifier_key
from proctor.ledger.reader import LedgerReader

_FORMAT = "proctor-submission-1"


def submission_message(origin: str, entry: AnyEntry) -> bytes:
    """What a machine signs of an entry."""
    draft = msgspec.structs.replace(entry, at="", seq=0, signed=msgspec.UNSET)
    return f"{_FORMAT}\n{origin}\n{sha256_hex(encode_entry(draft))}\n".encode()


def sign_entry(entry: AnyEntry, origin: str, machine: str, key: Signer) -> AnyEntry:
    """The entry with the signature of a machine."""
    signature = base64.b64encode(key.sign(submission_message(origin, entry))).decode()
    signed = MachineSignature(machine=machine, signature=signature)
    return msgspec.structs.replace(entry, signed=signed)


@lru_cache(maxsize=256)
def _load_public(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)


@dataclass(slots=True)
class Machines:
    """The machines that are enrolled at a position of a log."""

    keys: dict[str, VerifierKey] = field(default_factory=dict)
    """By name."""

    def take(self, entry: MachineEntry) -> str | None:
        """Apply the next entry; returns why it is invalid, or None."""
        try:
            check_name(entry.name, "the name of a machine")
            key = parse_verifier_key(entry.key)
        except KeyFileError as error:
            return str(error)
        known = self.keys.get(entry.name)
        if key.algorithm is not Algorithm.ED25519:
            return f"enrols {entry.name} with the key of a cosigner"
        if entry.is_revoked:
            if known != key:
                return f"revokes {entry.name}, which is not enrolled with this key"
            del self.keys[entry.name]
        elif known is not None:
            return f"enrols {entry.name}, which is enrolled already"
        else:
            self.keys[entry.name] = key
        return None

    def find_fault(self, entry: AnyEntry, origin: str) -> str | None:
        """Why the signature on an entry is invalid, or None; it may have none."""
        signed = entry.signed
        if signed is msgspec.UNSET:
            return None
        key = self.keys.get(signed.machine)
        if key is None:
            return f"is signed by the machine {signed.machine[:80]!r}, which is not enrolled there"
        try:
            signature = base64.b64decode(signed.signature, validate=True)
            message = submission_message(origin, entry)
            _load_public(key.public).verify(signature, message)
        except (InvalidSignature, ValueError, binascii.Error):
            return f"has an invalid signature of the machine {signed.machine[:80]!r}"
        return None


def load_machines(ledger: LedgerReader) -> Machines:
    """The machines that are enrolled now; call `refresh` first.

    Raises:
        DamageError: an entry cannot be read.
    """
    machines = Machines()
    for seq in ledger.index.places("machine"):
        entry = ledger.entry(seq)
        if isinstance(entry, MachineEntry):
            machines.take(entry)
    return machines
