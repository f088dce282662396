"""`proctor ledger checkpoint`: prints or saves the signed checkpoint, and the public key."""

from pathlib import Path

import click

from proctor.cli.ledger.key import load_public_key
from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.options import PATH, sample_option
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.cli.stdout import send_bytes


@click.command("checkpoint")
@click.option(
    "--public-key",
    is_flag=True,
    help="Print the public key that verifies the signature, as `proctor ledger key` does.",
)
@click.option(
    "-o", "--output", type=PATH, help="Save the checkpoint to this file; never overwrite one."
)
@ledger_option
@sample_option
@json_option
def command(public_key: bool, output: str | None, directory: str | None, as_json: bool) -> int:
    """Print or save the ledger's checkpoint: origin, size, root and signature.

    Keep a checkpoint to prove later that the ledger was changed or truncated: `proctor ledger
    verify --since`. The log is checked against the checkpoint before it is printed.

    Example: proctor ledger checkpoint -o checkpoint-2026-11-15
    """
    with open_ledger(directory) as ledger:
        checkpoint = ledger.refresh()
        key = load_public_key(ledger)
        data = f"{key}\n".encode() if public_key else checkpoint.render()
        if output is not None:
            write_new_file(Path(output), data, [ledger.where])
    if as_json:
        print_json(
            {
                "origin": checkpoint.origin,
                "size": checkpoint.tree.size,
                "root": checkpoint.tree.root.hex(),
                "checkpoint": checkpoint.render().decode(),
                "public_key": str(key),
                "path": output,
            }
        )
    elif output is not None:
        print_line(f"{output}: {'the public key' if public_key else 'the checkpoint'} is saved")
    else:
        send_bytes(data)
    return 0
