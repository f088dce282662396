"""Whose word a checkpoint is: public keys that somebody trusts, held against its signatures.

A key that was trusted once may have named its successor in a `key` entry: `chain` are the keys of a
log, each checked against the one before it. Nothing here decides which key to trust.
"""

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from proctor.diagnostic import Diagnostic
from proctor.errors import KeyFileError, SignatureError
from proctor.files import read_head
from proctor.ledger.handover import follow_keys
from proctor.ledger.note import Algorithm, Checkpoint, VerifierKey, parse_verifier_key
from proctor.ledger.signature import check_signature

_LARGEST = 4096


def find_verifier_key(given: str) -> VerifierKey:
    """A public key, given as its text or as a file that holds it.

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
            f"{given}: a signing key; expected the public one, which "
            "`proctor ledger checkpoint --public-key` prints"
        )
    try:
        return parse_verifier_key(text)
    except KeyFileError as error:
        # Without what it holds: a file that was named by mistake may be anybody's secret.
        raise KeyFileError(
            f"{given}: holds no public key; expected name+key id+key, as "
            "`proctor ledger checkpoint --public-key` prints it"
        ) from error


def judge_signatures(
    checkpoint: Checkpoint,
    keys: Sequence[VerifierKey],
    where: str,
    chain: Sequence[VerifierKey] = (),
) -> Iterator[Diagnostic]:
    """What each key says of a checkpoint: a note where it signed, a problem where it did not."""
    for key in keys:
        try:
            yield _judge(checkpoint, key, where, chain)
        except SignatureError as error:
            yield Diagnostic("bad-signature", str(error))


def _judge(
    checkpoint: Checkpoint, key: VerifierKey, where: str, chain: Sequence[VerifierKey]
) -> Diagnostic:
    heir = key if key.algorithm is Algorithm.COSIGNATURE else follow_keys(key, chain)
    time = check_signature(checkpoint, heir, where)
    name = f"{heir.name}+{heir.key_id.hex()}"
    if time is not None:
        message = f"{where}: cosigned by {name} at {_render_time(time)}, as that cosigner says"
    elif heir != key:
        message = f"{where}: signed by {name}, which {key.name}+{key.key_id.hex()} named its heir"
    else:
        message = f"{where}: signed by {name}"
    return Diagnostic("signed", message, is_problem=False)


def _render_time(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"second {seconds} since 1970"


def find_unchecked_signatures(
    checkpoints: Sequence[Checkpoint],
    keys: Sequence[VerifierKey],
    chain: Sequence[VerifierKey] = (),
) -> list[str]:
    """Whose signatures nobody looked at, in sentences."""
    heirs = [follow_keys(key, chain) for key in keys if key.algorithm is Algorithm.ED25519]
    looked = {(key.name, key.key_id) for key in (*keys, *heirs)}
    lines = [line for checkpoint in checkpoints for line in checkpoint.signatures]
    others = dict.fromkeys(
        f"{line.name}+{line.key_id.hex()}"
        for line in lines
        if (line.name, line.key_id) not in looked
    )
    if not heirs:
        return [
            f"the signature by {', '.join(others) or 'nobody'}: no --key of a ledger that you "
            "trust was given, and without one anybody could have made this"
        ]
    return [f"the signature by {name}: its key was not given" for name in others]
