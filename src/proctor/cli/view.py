"""`proctor view`: shows a ledger or jobs in a browser."""

from importlib import import_module

import click

from proctor.cli.ledger.options import ledger_option
from proctor.cli.options import PATH, sample_option
from proctor.cli.output import json_option


@click.command("view")
@click.argument("thing", metavar="[JOB|LEDGER]", required=False, type=PATH)
@ledger_option
@sample_option
@click.option(
    "--port", type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free one.  [default: 8380, else a free one]",
)  # fmt: skip
@click.option("--open/--no-open", "opens", help="Open the page in a browser.  [default: no]")
@json_option
def command(
    thing: str | None, directory: str | None, port: int | None, opens: bool, as_json: bool
) -> int:
    """View a ledger, a job, or a directory of jobs in a browser.

    The server is reachable from this machine only, and runs until it is interrupted: Ctrl-C ends it
    with exit code 0. Reading requires nothing; writing, such as a review, requires the token in the
    printed address. For one job the address opens its page, otherwise the list.

    Example: proctor view jobs/nightly
    """
    # Imported late: the server is slow to import, and --help does not need it.
    import_module("proctor.cli.viewing").view(
        thing, directory, port=port, opens=opens, as_json=as_json
    )
    return 0
