"""`proctor import`: imports runs of other systems and ledgers.

    aec_bench   a tree of aec-bench's records
    harbor      harbor's jobs
    inspect     the samples of Inspect's logs
    traces      loose trajectories, conversations and ATIF files
    bundle      what `proctor export` wrote
    prime       the hosted samples of a Prime evaluation
    taking      seals what was found, and prints the result

Nothing here reads what was brought.
"""

import click

from proctor.cli.main import CommandTable
from proctor.sentence import printable

COMMANDS = {
    "aec-bench": "Import a tree of aec-bench records, of any generation.",
    "harbor": "Import the trials of harbor jobs, each with all its files.",
    "inspect": "Import the samples of Inspect logs (.eval, .json).",
    "traces": "Import loose trajectories, conversations and ATIF files.",
    "bundle": "Import a bundle from another ledger, after checking it.",
    "prime": "Import the hosted samples of a Prime evaluation.",
}


class _Imports(CommandTable):
    """The import commands."""

    package = "proctor.cli.import_"
    commands_by_name = COMMANDS

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command of that name; the error lists all of them."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(
                f"{printable(args[0])!r} is not a kind of import; expected one of "
                f"{', '.join(COMMANDS)} before the path to import",
                ctx,
            )
        return super().resolve_command(ctx, args)


@click.group("import", cls=_Imports, epilog="Example: proctor import harbor jobs/nightly")
def command() -> None:
    """Import runs into the ledger: from other systems, or from bundles.

    Creates the ledger if it is missing.
    """
