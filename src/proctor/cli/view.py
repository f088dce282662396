"""`proctor view`: pages of a ledger or of jobs, on this machine."""

from pathlib import Path

import click

from proctor.cli.ledger.options import find_directory, json_option, ledger_option
from proctor.cli.options import PATH
from proctor.cli.output import print_json
from proctor.cli.stdout import tell
from proctor.errors import InputError
from proctor.importers.harbor_job import find_jobs
from proctor.web.app import make_app
from proctor.web.server import HOST, listen, serve
from proctor.web.subject import Subject

_PORT = 8380


@click.command("view")
@click.argument("thing", metavar="[JOB|LEDGER]", required=False, type=PATH)
@ledger_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=_PORT, show_default=True,
    help="Where to answer; 0 takes a free one.",
)  # fmt: skip
@json_option
def command(thing: str | None, directory: str | None, port: int, as_json: bool) -> int:
    """Look at runs in a browser: a ledger, a job's directory, or a directory of jobs.

    It answers on this machine alone, until it is interrupted.

    Example: proctor view jobs/nightly
    """
    app = make_app(find_subject(thing, directory))
    listening = listen(port)
    address = f"http://{HOST}:{listening.getsockname()[1]}/"
    if as_json:
        print_json({"address": address})
    else:
        tell(f"{address} (Ctrl-C ends it)")
    serve(app, listening)
    return 0


def find_subject(thing: str | None, directory: str | None) -> Subject:
    """What is meant: a ledger, or jobs.

    Raises:
        InputError: there is neither.
    """
    place = Path(thing) if thing is not None else find_directory(directory)
    if not place.exists():
        raise InputError(f"{place}: there is no such directory; expected a ledger or a job")
    if (place / "checkpoint").exists() or (place / "entries").exists():
        return Subject(ledger=place)
    return Subject(jobs=tuple(job.resolve() for job in find_jobs(place)))
