"""`proctor ledger cosign`: somebody else's signature under a copy of a checkpoint."""

import os
import time
from pathlib import Path

import click

from proctor.cli.ledger.options import json_option
from proctor.cli.options import PATH, check_companions
from proctor.cli.output import print_json, print_line
from proctor.errors import KeyFileError
from proctor.ledger.claims.cosigning import check_growth, cosign_copy, load_copy
from proctor.ledger.claims.proof import load_checkpoint
from proctor.ledger.claims.trust import find_verifier_key
from proctor.ledger.keys import SigningKey, load_key, make_key


@click.command("cosign")
@click.argument("checkpoint", type=PATH)
@click.option(
    "--key", "key_file", type=PATH, required=True, help="Your signing key; not the ledger's."
)
@click.option("--name", help="Make the key, under this name, where there is none yet.")
@click.option("--log-key", metavar="PUB", help="The ledger's public key: it must have signed.")
@click.option("--ledger", "directory", type=PATH, help="The ledger: its log must give this.")
@click.option("--since", type=PATH, metavar="OLDER", help="It must have grown from this one.")
@json_option
def command(
    checkpoint: str,
    key_file: str,
    name: str | None,
    log_key: str | None,
    directory: str | None,
    since: str | None,
    as_json: bool,
) -> int:
    """Put your own signature, with the time, under a copy of somebody's CHECKPOINT.

    It says: I saw this at that time. With --ledger the log is read and must give what the
    checkpoint says; with --since it must have grown from a checkpoint that you kept. The file is
    replaced in one step. Cosigning twice with one key changes nothing.

    Example: proctor ledger cosign checkpoint-2026-11-15 --key ~/keys/mine --since kept --ledger L
    """
    check_companions({"since": "directory"})
    path = Path(checkpoint)
    trusted = find_verifier_key(log_key) if log_key is not None else None
    found = load_copy(path, trusted)
    if directory is not None:
        older = load_checkpoint(since) if since is not None else None
        check_growth(found, older, Path(directory))
    # Last: what is not cosigned leaves no new key behind either.
    key, is_made = _find_key(Path(key_file), name)
    done = cosign_copy(path, found, key, int(time.time()))
    facts = {
        "checkpoint": checkpoint,
        "origin": done.checkpoint.origin,
        "size": done.checkpoint.tree.size,
        "public_key": str(key.cosigner),
        "time": done.time,
        "is_new": done.is_new,
        "key_made": is_made,
    }
    if as_json:
        print_json(facts)
        return 0
    how = "cosigned" if done.is_new else "was cosigned already, and stays as it is"
    print_line(f"{checkpoint}: {how}; the key to check it with is")
    print_line(str(key.cosigner))
    if directory is None:
        click.echo("proctor: note: nobody looked at the log; --ledger names it", err=True)
    return 0


def _find_key(path: Path, name: str | None) -> tuple[SigningKey, bool]:
    """The key in a file, or a new one; and whether it was made just now."""
    if name is not None and not os.path.lexists(path):
        return make_key(path, name), True
    key = load_key(path)
    if name not in (None, key.name):
        raise KeyFileError(f"{path}: the key of {key.name!r}; --name says {name!r}")
    return key, False
