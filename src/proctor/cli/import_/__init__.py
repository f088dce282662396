"""`proctor import`: what other systems and other ledgers left, brought into a ledger.

    aec_bench   a tree of aec-bench's records
    harbor      harbor's jobs
    traces      loose trajectories, conversations and ATIF files
    bundle      what `proctor export` wrote

Nothing here reads what was brought.
"""

import click

from proctor.cli.commands import CommandTable

COMMANDS = {
    "aec-bench": "A tree of aec-bench's records, of any generation.",
    "harbor": "The trials of harbor's jobs, each with all its files.",
    "traces": "Loose trajectories, conversations and ATIF files.",
    "bundle": "A bundle from another ledger, checked before it is taken.",
}


class _Imports(CommandTable):
    """What can be brought in."""

    package = "proctor.cli.import_"
    commands_by_name = COMMANDS


@click.group("import", cls=_Imports, epilog="Example: proctor import harbor jobs/nightly")
def command() -> None:
    """Bring runs into the ledger: harbor's jobs, aec-bench's records, traces, bundles.

    A missing ledger is made.
    """
