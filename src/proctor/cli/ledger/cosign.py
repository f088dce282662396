"""`proctor ledger cosign`: adds a witness's signature to a copy of a checkpoint."""

import os
import time
from pathlib import Path

import click

from proctor.cli.ledger.options import open_memory, state_option
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option, print_json, print_line
from proctor.errors import KeyFileError
from proctor.ledger.claims.trust import load_verifier_key
from proctor.ledger.claims.witness import WitnessInput, witness_copy
from proctor.ledger.keys import SigningKey, load_key, make_key
from proctor.ledger.place import local_directory


@click.command("cosign")
@click.argument("checkpoint", type=PATH)
@click.option(
    "--key", "key_file", type=PATH, required=True, help="Your own signing key, not the ledger's."
)
@click.option("--name", help="Create the key under this name if it is missing.")
@click.option(
    "--log-key",
    metavar="PUB",
    help="Public key of the ledger, as `proctor ledger key` prints it; required the first time you "
    "see the ledger.",
)
@click.option(
    "--ledger",
    "directory",
    type=PATH,
    help="Ledger directory, to prove that it only grew since the last checkpoint.",
)
@click.option("--proof", type=PATH, help="Consistency proof, instead of --ledger.")
@state_option
@json_option
def command(
    checkpoint: str,
    key_file: str,
    name: str | None,
    log_key: str | None,
    directory: str | None,
    proof: str | None,
    state: str | None,
    as_json: bool,
) -> int:
    """Add your own timestamped signature to a copy of someone else's CHECKPOINT.

    The signature states: I saw this checkpoint at that time, and it extends everything I saw of
    this ledger before. The last checkpoint of each ledger is remembered, and the next one is
    cosigned only if it extends it, as proved with --ledger or --proof. A fork or a rollback is
    refused with exit code 1, and both signed checkpoints are kept. Cosigning twice with one key
    changes nothing.

    Example: proctor ledger cosign checkpoint-2026-11-15 --key ~/keys/mine --ledger ledger
    """
    check_apart("directory", "proof")
    shown = WitnessInput(
        log_key=load_verifier_key(log_key) if log_key is not None else None,
        # Not the copy of a served ledger: fetching it would move what a witness has seen.
        ledger=local_directory(directory, {}) if directory is not None else None,
        proof=proof,
    )
    found: list[tuple[SigningKey, bool]] = []

    def find_key() -> SigningKey:
        # Loaded last: a refused checkpoint must not create a key.
        found.append(_find_key(Path(key_file), name))
        return found[0][0]

    done = witness_copy(Path(checkpoint), open_memory(state), shown, find_key, int(time.time()))
    ((key, is_made),) = found
    if as_json:
        print_json(
            {
                "checkpoint": checkpoint,
                "origin": done.checkpoint.origin,
                "size": done.checkpoint.tree.size,
                "public_key": str(key.cosigner),
                "time": done.time,
                "is_new": done.is_new,
                "key_made": is_made,
            }
        )
        return 0
    how = "cosigned" if done.is_new else "already cosigned; unchanged"
    print_line(f"{checkpoint}: {how}; the key to check it with is")
    print_line(str(key.cosigner))
    return 0


def _find_key(path: Path, name: str | None) -> tuple[SigningKey, bool]:
    """Load the key in a file, or create it; returns it, and whether it is new."""
    if name is not None and not os.path.lexists(path):
        return make_key(path, name), True
    key = load_key(path)
    if name not in (None, key.name):
        raise KeyFileError(f"{path}: the key of {key.name!r}; --name says {name!r}")
    return key, False
