"""Checks the signatures of checkpoints, and the keys of a log: each named by the one before it.

A handover signs the origin, its position in the log, the root of the log before it, and the new
key, so that it is valid nowhere else. A replaced key never signs again. Callers pass entries whose
positions are proven; which key to trust is not decided here.

Separate from note.py, because the crypto library is slow to import and lists do not need it.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from proctor.errors import DamageError, KeyFileError, SignatureError
from proctor.ledger.entry import KeyEntry
from proctor.ledger.note import (
    Checkpoint,
    VerifierKey,
    handover_message,
    parse_verifier_key,
)


def check_signature(checkpoint: Checkpoint, key: VerifierKey, where: str) -> None:
    """Refuse a checkpoint that the key did not sign.

    Raises:
        SignatureError: there is no signature by this key, or it is invalid.
    """
    for signature in checkpoint.signatures:
        if signature.name == key.name and signature.key_id == key.key_id:
            try:
                public = Ed25519PublicKey.from_public_bytes(key.public)
                public.verify(signature.payload, checkpoint.body)
            except (InvalidSignature, ValueError) as error:
                signer = f"{key.name}+{key.key_id.hex()}"
                raise SignatureError(f"{where}: the signature by {signer} is invalid") from error
            return
    signers = ", ".join(f"{found.name}+{found.key_id.hex()}" for found in checkpoint.signatures)
    raise SignatureError(
        f"{where}: no signature by {key.name}+{key.key_id.hex()}; signed by {signers or 'nobody'}"
    )


def did_sign(key: VerifierKey, entry: KeyEntry) -> bool:
    """Whether a key signed the entry that names its successor, for its position."""
    if not entry.root:
        return False
    try:
        signature = base64.b64decode(entry.signature or "", validate=True)
        message = handover_message(entry.origin, entry.key, entry.seq, entry.root)
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, message)
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


type Handover = tuple[KeyEntry, bytes | None]
"""A key entry, and the root of the tree before it as computed by the reader; None if unknown."""


def take_key(keys: list[VerifierKey], handover: Handover) -> str | None:
    """Append the key of the next key entry; returns the reason if the entry is invalid."""
    entry, root = handover
    try:
        key = parse_verifier_key(entry.key)
    except KeyFileError as error:
        return f"does not name a valid key: {error}"
    # Two spellings of one key would be two names for it.
    if str(key) != entry.key:
        return "names a key that is not in the canonical form"
    if keys:
        if any(each.public == key.public for each in keys):
            return f"names the key {short_name(key)}, which signed before and was replaced"
        if not did_sign(keys[-1], entry):
            return f"names the key {short_name(key)}, which {short_name(keys[-1])} did not sign"
        if root is not None and root.hex() != entry.root:
            return f"names the key {short_name(key)} for another log: the root before it differs"
    keys.append(key)
    return None


def follow_handovers(handovers: Iterable[Handover], origin: str) -> list[VerifierKey]:
    """The keys of a log, oldest first.

    Raises:
        DamageError: there is no key, it belongs to another log, or a handover is invalid.
    """
    keys: list[VerifierKey] = []
    for handover in sorted(handovers, key=lambda found: found[0].seq):
        entry, _ = handover
        if entry.origin != origin:
            raise DamageError(f"entry {entry.seq} names a key of {entry.origin!r}, not {origin!r}")
        if not keys and entry.seq != 0:
            raise DamageError("the first entry, which names the ledger's key, is missing")
        if fault := take_key(keys, handover):
            raise DamageError(f"entry {entry.seq} {fault}")
    if not keys:
        raise DamageError("no entry names the ledger's key")
    return keys


def follow_keys(key: VerifierKey, keys: Sequence[VerifierKey]) -> VerifierKey:
    """The last key of a log if the trusted key is one of its keys; else the trusted key itself."""
    return keys[-1] if key in keys else key


def short_name(key: VerifierKey) -> str:
    """Name and key id of a key."""
    return f"{key.name}+{key.key_id.hex()}"
