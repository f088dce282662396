"""`proctor ledger key`: prints the public key of a ledger."""

from pathlib import Path

import click

from proctor.cli.ledger.options import ledger_option, load_public_key, open_ledger
from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line, write_new_file


@click.command("key")
@click.option("-o", "--output", type=PATH, help="Write the key to this file; never overwrite one.")
@ledger_option
@json_option
def command(output: str | None, directory: str | None, as_json: bool) -> int:
    """Print the public key of the ledger, for everyone who checks it.

    Give it to others through another channel than the ledger, its proofs and its claims: whoever
    could replace those could replace the key too. They pass it as `--key` to `proctor check` and
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
