"""`proctor ledger`: commands about the sealed log, one module each.

    init         creates a ledger
    seal         seals records and trials
    list         lists sealed trials
    verify       verifies a ledger
    prove        writes proofs
    claim        writes a score with its proofs
    checkpoint   prints or saves the checkpoint
    key          prints the public key
    review       adds a review of a trial
    withhold     withholds the bytes of a trial
    publish      writes a ledger as static files
    options      common options
    target       opens the ledger for writing
    filters      options that select trials
    progress     a progress bar

Nothing here hashes or signs.
"""

import click

from proctor.cli.main import CommandTable

# Every command and the first line of its help; implemented in proctor.cli.ledger.NAME.
COMMANDS = {
    "init": "Create a ledger signed by your key; create the key if it is missing.",
    "seal": "Seal records or trials with their evidence; without them, send what waits.",
    "list": "List sealed trials, in the order they were sealed.",
    "verify": "Recompute everything and report damage; exit with 1 if there is any.",
    "prove": "Prove that an entry is in the ledger, or that the ledger only grew.",
    "claim": "Pack a score, its entries, their proof and the checkpoint into one file.",
    "checkpoint": "Print or save the ledger's checkpoint: origin, size, root and signature.",
    "key": "Print the public key of the ledger, for everyone who checks it.",
    "review": "Record your verdict on a trial, without changing the trial.",
    "withhold": "Remove the bytes of a trial but keep their digests.",
    "publish": "Publish a ledger as static files to TARGET: s3://BUCKET/PREFIX or a directory.",
}


class LedgerCommands(CommandTable):
    """The commands of the ledger."""

    package = "proctor.cli.ledger"
    commands_by_name = COMMANDS


@click.group("ledger", cls=LedgerCommands)
def command() -> None:
    """Manage the sealed log: append-only, and verifiable by anyone.

    The ledger is the directory given by --ledger, else PROCTOR_LEDGER, else ./ledger.

    Example: proctor ledger seal jobs/nightly/fix-bug__a1B2c3D --experiment nightly
    """
