"""Checks the signatures of a checkpoint against trusted public keys.

A trusted key may have named its successor in a `key` entry: `chain` are the keys of a log, each
checked against the one before it. Which key to trust is up to the caller.
"""

import os
from collections.abc import Iterator, Sequence

from proctor.diagnostic import Diagnostic
from proctor.errors import KeyFileError, SignatureError
from proctor.files import read_head
from proctor.ledger.note import Checkpoint, VerifierKey, parse_verifier_key
from proctor.ledger.signature import check_signature, follow_keys

_LARGEST = 4096


def load_verifier_key(given: str) -> VerifierKey:
    """Load a public key, given as its text or as a file that contains it.

    Raises:
        KeyFileError: it is neither.
    """
    if not os.path.lexists(given):
        return parse_verifier_key(given)
    try:
        text = read_head(given, _LARGEST).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileError(f"{given}: the public key cannot be read: {error}") from error
    if "PRIVATE" in text[:200]:
        raise KeyFileError(
            f"{given}: a signing key; expected the public one, which `proctor ledger key` prints"
        )
    try:
        return parse_verifier_key(text)
    except KeyFileError as error:
        # Without the file's content: a file passed by mistake may contain a secret.
        raise KeyFileError(
            f"{given}: does not contain a public key; expected name+key id+key, as "
            "`proctor ledger key` prints it"
        ) from error


def judge_signatures(
    checkpoint: Checkpoint,
    keys: Sequence[VerifierKey],
    where: str,
    chain: Sequence[VerifierKey] = (),
) -> Iterator[Diagnostic]:
    """A note for each key that signed the checkpoint, a problem for each that did not."""
    for key in keys:
        successor = follow_keys(key, chain)
        try:
            check_signature(checkpoint, successor, where)
        except SignatureError as error:
            yield Diagnostic("bad-signature", str(error))
            continue
        message = f"{where}: signed by {successor.name}+{successor.key_id.hex()}"
        if successor != key:
            message += f", which succeeds {key.name}+{key.key_id.hex()}"
        yield Diagnostic("signed", message, is_problem=False)


def find_unchecked_signatures(
    checkpoints: Sequence[Checkpoint],
    keys: Sequence[VerifierKey],
    chain: Sequence[VerifierKey] = (),
) -> list[str]:
    """Messages for the signatures that were not checked."""
    successors = [follow_keys(key, chain) for key in keys]
    looked = {(key.name, key.key_id) for key in (*keys, *successors)}
    lines = [line for checkpoint in checkpoints for line in checkpoint.signatures]
    others = dict.fromkeys(
        f"{line.name}+{line.key_id.hex()}"
        for line in lines
        if (line.name, line.key_id) not in looked
    )
    if not successors:
        return [
            f"the signature by {', '.join(others) or 'nobody'}: no trusted --key was given, so "
            "the signer is unverified; the ledger's owner prints the key with `proctor ledger key`"
        ]
    return [f"the signature by {name}: its key was not given" for name in others]
