"""`proctor import`: what other systems and other ledgers left, brought into a ledger.

    aec_bench   a tree of aec-bench's records
    bundle      what `proctor export` wrote
    prime       the hosted samples of a Prime evaluation
    taking      what every import ends with

Nothing here reads what was brought.
"""

import click

from proctor.cli.commands import CommandTable
from proctor.cli.printable import printable

COMMANDS = {
    "aec-bench": "A tree of aec-bench's records, of any generation.",
    "bundle": "A bundle from another ledger, checked before it is taken.",
    "prime": "The hosted samples of a Prime evaluation.",
}


class _Imports(CommandTable):
    """What can be brought in."""

    package = "proctor.cli.import_"
    commands_by_name = COMMANDS

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; of what is none, a sentence says what there is."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise click.UsageError(
                f"{printable(args[0])!r} is no kind of import; expected one of "
                f"{', '.join(COMMANDS)} before what is to be brought in",
                ctx,
            )
        return super().resolve_command(ctx, args)


@click.group("import", cls=_Imports, epilog="Example: proctor import bundle nightly.tar.zst")
def command() -> None:
    """Bring runs into the ledger: what other systems left, and bundles.

    A missing ledger is made.
    """
