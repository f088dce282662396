"""Checks the signatures of checkpoints and handovers.

Separate from note.py, because the crypto library is slow to import and lists do not need it.
"""

import base64
import binascii

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from proctor.errors import SignatureError
from proctor.ledger.entry import KeyEntry
from proctor.ledger.note import (
    Checkpoint,
    VerifierKey,
    handover_message,
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
