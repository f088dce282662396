"""`proctor import`: what other systems and other ledgers left, brought into a ledger.

    aec_bench   a tree of aec-bench's records
    bundle      what `proctor export` wrote

Nothing here reads what was brought.
"""

import click

from proctor.cli.commands import CommandTable

COMMANDS = {
    "aec-bench": "A tree of aec-bench's records, of any generation.",
    "bundle": "A bundle from another ledger, checked before it is taken.",
}


class _Imports(CommandTable):
    """What can be brought in."""

    package = "proctor.cli.import_"
    commands_by_name = COMMANDS


@click.group("import", cls=_Imports, epilog="Example: proctor import bundle nightly.tar.zst")
def command() -> None:
    """Bring runs into the ledger: aec-bench's records, bundles.

    A missing ledger is made.
    """
