"""`proctor view`: pages of a ledger or of jobs, on this machine."""

from importlib import import_module

import click

from proctor.cli.ledger.options import json_option, ledger_option
from proctor.cli.options import PATH


@click.command("view")
@click.argument("thing", metavar="[JOB|LEDGER]", required=False, type=PATH)
@ledger_option
@click.option(
    "--port", type=click.IntRange(0, 65535),
    help="Where to answer; 0 takes a free one.  [default: 8380, else a free one]",
)  # fmt: skip
@click.option("--open/--no-open", "opens", help="Open the page in a browser.  [default: no]")
@json_option
def command(
    thing: str | None, directory: str | None, port: int | None, opens: bool, as_json: bool
) -> int:
    """Look at runs in a browser: a ledger, a job, or a directory of jobs.

    It answers on this machine alone, until it is interrupted: Ctrl-C is how it is ended, and
    gives exit code 0. Reading needs nothing; writing, such as a review, needs the token in the
    address that is printed.

    Example: proctor view jobs/nightly
    """
    # The server is slow to load, and not needed to say how it is used.
    import_module("proctor.cli.viewing").view(
        thing, directory, port=port, opens=opens, as_json=as_json
    )
    return 0
