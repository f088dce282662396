"""`proctor view`: pages of a ledger or of jobs, on this machine."""

import socket
import webbrowser
from pathlib import Path

import click

from proctor.cli.ledger.options import find_directory, json_option, ledger_option
from proctor.cli.options import PATH
from proctor.cli.output import print_json
from proctor.cli.printable import printable
from proctor.cli.stdout import tell
from proctor.errors import DamageError, InputError, JobError, LedgerError, NoteError
from proctor.harbor.job import load_job
from proctor.importers.harbor_job import find_jobs
from proctor.ledger.ledger import Ledger
from proctor.ledger.segments import find_segments
from proctor.web.app import make_app
from proctor.web.server import HOST, listen, serve
from proctor.web.subject import Subject
from proctor.web.writing import new_token

_PORT = 8380


@click.command("view")
@click.argument("thing", metavar="[JOB|LEDGER]", required=False, type=PATH)
@ledger_option
@click.option(
    "--port", type=click.IntRange(0, 65535),
    help=f"Where to answer; 0 takes a free one.  [default: {_PORT}, else a free one]",
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
    subject = find_subject(thing, directory)
    token = new_token()
    app = make_app(subject, token=token)
    listening = _listen(port)
    address = f"http://{HOST}:{listening.getsockname()[1]}/"
    opened = f"{address}?token={token}"
    if as_json:
        print_json({"address": address, "token": token, "open": opened})
    else:
        tell(f"{_describe(subject)}: {opened} (Ctrl-C ends it)")
    if opens and not webbrowser.open(opened):
        tell("no browser could be started; open the address yourself")
    serve(app, listening)
    return 0


def _listen(port: int | None) -> socket.socket:
    if port is not None:
        return listen(port)
    try:
        return listen(_PORT)
    except InputError:
        return listen(0)


def _describe(subject: Subject) -> str:
    if subject.ledger is not None:
        return printable(f"the ledger {subject.ledger}")
    jobs = subject.jobs
    return printable(f"the job {jobs[0]}") if len(jobs) == 1 else f"{len(jobs):,} jobs"


def find_subject(thing: str | None, directory: str | None) -> Subject:
    """What is meant: a ledger, or jobs.

    Raises:
        InputError: there is neither.
    """
    if thing is not None and directory is not None:
        raise InputError(f"{thing} and --ledger {directory}: expected one of the two")
    place = Path(thing) if thing is not None else find_directory(directory)
    if not place.exists():
        raise InputError(
            f"{place}: there is nothing; expected a ledger, a job's directory or a directory of "
            "jobs, such as `proctor view jobs/nightly`"
        )
    if (place / "checkpoint").exists() or (place / "entries").is_dir():
        _check_ledger(place)
        return Subject(ledger=place.resolve())
    place = place.resolve()
    jobs = find_jobs(place)
    if jobs != [place]:
        return Subject(jobs=tuple(jobs), root=place)
    try:
        load_job(str(place))
    except JobError as error:
        raise InputError(f"{error}; nor is it a ledger") from error
    return Subject(jobs=(place,))


def _check_ledger(place: Path) -> None:
    """Refuse what no page can be made of; a damaged ledger is shown as such.

    Raises:
        LedgerError: it is of another format, or nothing is in it.
    """
    try:
        Ledger.open(place).close()
    except (DamageError, NoteError):
        return
    except LedgerError:
        if (place / "checkpoint").exists() or not find_segments(place / "entries"):
            raise
