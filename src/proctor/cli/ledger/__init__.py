"""`proctor ledger`: the sealed log, a module for every command.

    init         make a ledger
    seal         records and trials into it
    list         what is in it
    verify       whether all of it is what was sealed
    prove        proofs that are checked without it
    attest       a statement that names every entry of an experiment
    claim        a score with its proofs, in one file
    checkpoint   what it is at this moment, signed
    cosign       the same, signed by somebody else
    watch        what appears in ledgers that others write
    review       what a person says of a trial
    withhold     bytes out of it, and back
    stats        counts and bytes
    options      options that all of them have
    target       the ledger that something is sealed into
    filters      options that say which trials are meant
    secrets      values that must not be sealed
    progress     a bar, where something takes long
    plain_table  rows under headings, drawn fast

Nothing here hashes or signs.
"""

import click

from proctor.cli.main import CommandTable

COMMANDS = {
    "init": "Create a ledger signed by your key; create the key if it is missing.",
    "seal": "Seal records or trials with their evidence; create the ledger if it is missing.",
    "list": "List sealed trials, in the order they were sealed.",
    "verify": "Recompute everything and report damage; exit with 1 if there is any.",
    "prove": "Prove that an entry is in the ledger, or that the ledger only grew.",
    "attest": "Sign a statement of which entries of an EXPERIMENT the ledger holds.",
    "claim": "Pack a score, its entries, their proof and the checkpoint into one file.",
    "checkpoint": "Print or save the ledger's checkpoint: origin, size, root and signature.",
    "cosign": "Add your own timestamped signature to a copy of someone else's CHECKPOINT.",
    "watch": "Watch ledgers and report forks, rollbacks, duplicates, withholdings and damage.",
    "review": "Record your verdict on a trial, without changing the trial.",
    "withhold": "Remove bytes but keep their digests, or restore them.",
    "stats": "Show counts and bytes per experiment.",
}
"""Every command and the first line of its help; proctor.cli.ledger.NAME holds it."""


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
