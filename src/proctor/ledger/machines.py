"""Machines that submit entries to a server: each has a key of its own, and signs what it submits.

The owner of a ledger signs that an entry was logged; a machine signs that it ran what the entry
says. An entry of kind `machine` enrols a machine, a later one revokes it. What a machine signs is
the entry's line, with `at` empty, `seq` 0 and without `signed`:

    proctor-submission-1                  of one entry
    ORIGIN
    SHA-256 of the line

    proctor-submission-2                  of several that are submitted together
    ORIGIN
    SIZE ROOT of the Merkle tree over the lines

Each entry of a batch carries its own path to the root, so that it can be checked by itself. A
machine that enrols a key shows that it is its own by a signature of

    proctor-enrolment-1
    ORIGIN
    NAME
    PUBLIC KEY
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from proctor.digest import sha256_hex
from proctor.errors import KeyFileError, ProofError
from proctor.ledger.entry import (
    AnyEntry,
    BatchPlace,
    MachineEntry,
    MachineSignature,
    encode_entry,
)
from proctor.ledger.note import Signer, VerifierKey, check_name, parse_verifier_key
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tree import inclusion_path, leaf_hash, root_along, subtree_of


def sign_entries(
    entries: Sequence[AnyEntry], origin: str, machine: str, key: Signer
) -> list[AnyEntry]:
    """The entries, each with a signature of a machine; several are signed once."""
    lines = [_unsigned_line(entry) for entry in entries]
    if len(entries) == 1:
        found = [MachineSignature(machine=machine, signature=_sign(key, _one(origin, lines[0])))]
    else:
        leaves = [leaf_hash(line) for line in lines]
        size, subtree = len(leaves), subtree_of(leaves)
        signature = _sign(key, _several(origin, size, subtree(0, size)))
        found = []
        for at in range(size):
            path = (base64.b64encode(each).decode() for each in inclusion_path(subtree, size, at))
            place = BatchPlace(index=at, size=size, path=tuple(path))
            found.append(MachineSignature(machine=machine, signature=signature, batch=place))
    return [
        msgspec.structs.replace(entry, signed=signed)
        for entry, signed in zip(entries, found, strict=True)
    ]


def sign_enrolment(origin: str, name: str, key: Signer) -> str:
    """The signature of a machine that asks to be enrolled."""
    return _sign(key, _enrolment(origin, name, str(key.verifier)))


def is_enrolment(origin: str, name: str, key: VerifierKey, signature: str) -> bool:
    """Whether the holder of a key asked to enrol it under this name."""
    return _is_signed(key.public, signature, _enrolment(origin, name, str(key)))


def _enrolment(origin: str, name: str, key: str) -> bytes:
    return f"proctor-enrolment-1\n{origin}\n{name}\n{key}\n".encode()


def _sign(key: Signer, message: bytes) -> str:
    return base64.b64encode(key.sign(message)).decode()


def _unsigned_line(entry: AnyEntry) -> bytes:
    return encode_entry(msgspec.structs.replace(entry, at="", seq=0, signed=msgspec.UNSET))


def _one(origin: str, line: bytes) -> bytes:
    return f"proctor-submission-1\n{origin}\n{sha256_hex(line)}\n".encode()


def _several(origin: str, size: int, root: bytes) -> bytes:
    return f"proctor-submission-2\n{origin}\n{size} {root.hex()}\n".encode()


# The entries of a batch share their signature.
@lru_cache(maxsize=256)
def _is_signed(public: bytes, signature: str, message: bytes) -> bool:
    try:
        decoded = base64.b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(public).verify(decoded, message)
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


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
            line, batch = _unsigned_line(entry), signed.batch
            if batch is msgspec.UNSET:
                message = _one(origin, line)
            else:
                path = [base64.b64decode(each, validate=True) for each in batch.path]
                root = root_along(leaf_hash(line), batch.index, batch.size, path)
                message = _several(origin, batch.size, root)
            is_signed = _is_signed(key.public, signed.signature, message)
        except (ProofError, ValueError):
            is_signed = False
        if not is_signed:
            return f"has an invalid signature of the machine {signed.machine[:80]!r}"
        return None


def load_machines(ledger: LedgerReader) -> Machines:
    """The machines that are enrolled now; call `refresh` first."""
    machines = Machines()
    for seq in ledger.index.places("machine"):
        entry = ledger.entry(seq)
        if isinstance(entry, MachineEntry):
            machines.take(entry)
    return machines
