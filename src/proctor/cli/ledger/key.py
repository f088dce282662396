"""`proctor ledger key`: prints the public key of a ledger; also for commands that name it.

Not among the shared options: what checks signatures is slow to load, and lists need none of it.
"""

import shlex
from pathlib import Path

import click

from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.options import PATH, sample_option
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.errors import SignatureError
from proctor.ledger.note import VerifierKey, parse_checkpoint, parse_verifier_key
from proctor.ledger.reader import LedgerReader
from proctor.ledger.signature import check_signature


@click.command("key")
@click.option("-o", "--output", type=PATH, help="Write the key to this file; never overwrite one.")
@ledger_option
@sample_option
@json_option
def command(output: str | None, directory: str | None, as_json: bool) -> int:
    """Print the public key of the ledger, for everyone who checks it.

    Give it to others through another channel than the ledger, its proofs and its claims: anyone
    who can replace those can replace the key too. They pass it as `--key` to `proctor check` and
    `proctor ledger verify`. The line is the same until the ledger gets another key. It is no
    secret; the signing key is, and is never printed.

    Example: proctor check claim.json --key "$(proctor ledger key)"
    """
    with open_ledger(directory) as ledger:
        ledger.refresh()
        key = load_public_key(ledger)
        if output is not None:
            write_new_file(Path(output), f"{key}\n".encode(), [ledger.where])
    if as_json:
        print_json(
            {
                "public_key": str(key),
                "name": key.name,
                "key_id": key.key_id.hex(),
                "path": output,
            }
        )
    elif output is not None:
        print_line(f"{output}: the public key is saved")
    else:
        print_line(str(key))
    return 0


def load_public_key(ledger: LedgerReader) -> VerifierKey:
    """The public key that signs a ledger now, after checking that it signed the checkpoint."""
    key = parse_verifier_key(ledger.index.position().key)
    check_signature(ledger.checkpoint(), key, f"{ledger.where}/checkpoint")
    return key


def render_check(path: str, checkpoint: str, key: VerifierKey) -> str:
    """The command that checks a proof or a claim with the ledger's key.

    A copy of an older checkpoint may be signed by a former key, which the reader must know.
    """
    try:
        check_signature(parse_checkpoint(checkpoint.encode(), path), key, path)
    except SignatureError:
        return f"{shlex.join(['proctor', 'check', path])} --key FORMER_KEY"
    return shlex.join(["proctor", "check", path, "--key", str(key)])
