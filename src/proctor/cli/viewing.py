"""Serves the pages of `proctor view`. Imported on use."""

import contextlib
import socket
import threading
import time
import webbrowser
from pathlib import Path

from proctor.cli.ledger.options import choose_directory
from proctor.cli.options import name_ledger
from proctor.cli.output import print_json
from proctor.cli.stdout import print_stderr
from proctor.errors import (
    DamageError,
    InputError,
    JobError,
    LedgerError,
    NoteError,
    ProctorError,
)
from proctor.exchange.harbor_job import find_jobs
from proctor.harbor.job import load_job
from proctor.ledger.as_found import has_lines
from proctor.ledger.log import is_ledger
from proctor.ledger.place import find_url, open_reader
from proctor.sentence import printable
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.format import experiment_path
from proctor.web.reviews import new_token
from proctor.web.server import HOST, listen, serve

PORT = 8380
"""The default port."""
_FETCH_SEC = 5.0


def view(
    thing: str | None, directory: str | None, *, port: int | None, opens: bool, as_json: bool
) -> None:
    """Serve pages until interrupted."""
    source = find_subject(thing, directory)
    token = new_token()
    app = make_app(source, token=token)
    listening = _listen(port)
    address = f"http://{HOST}:{listening.getsockname()[1]}/"
    opened = f"{address}{_find_page(source)}?token={token}"
    if as_json:
        print_json({"address": address, "token": token, "open": opened})
    else:
        print_stderr(f"{_describe(source)}: {opened} (Ctrl-C ends it)")
    if opens and not webbrowser.open(opened):
        print_stderr("no browser could be started; open the address manually")
    if source.ledger is not None and find_url(source.ledger) is not None:
        threading.Thread(target=_keep_up, args=(source.ledger,), daemon=True).start()
    serve(app, listening)


def _keep_up(directory: Path) -> None:
    """Fetch what is new in a served ledger, every few seconds."""
    while True:
        # A server that shows another history is named by every page, from the copy's own check.
        with contextlib.suppress(ProctorError), open_reader(directory) as ledger:
            ledger.keep_up()
        time.sleep(_FETCH_SEC)


def _listen(port: int | None) -> socket.socket:
    if port is not None:
        return listen(port)
    try:
        return listen(PORT)
    except InputError:
        return listen(0)


def _find_page(source: DataSource) -> str:
    """The page to open first: that of the job if one was named, else the list."""
    is_list = source.ledger is not None or source.root is not None
    return "" if is_list else experiment_path(source.jobs[0].name).removeprefix("/")


def _describe(source: DataSource) -> str:
    if source.ledger is not None:
        return printable(f"the ledger {find_url(source.ledger) or source.ledger}")
    jobs = source.jobs
    return printable(f"the job {jobs[0]}") if len(jobs) == 1 else f"{len(jobs):,} jobs"


def find_subject(thing: str | None, directory: str | None) -> DataSource:
    """Decide what to show: a ledger, or jobs.

    Raises:
        InputError: there is neither.
    """
    if thing is not None and directory is not None:
        raise InputError(f"{thing} and {' '.join(name_ledger(directory))}: expected one of the two")
    place = choose_directory(directory if thing is None else thing or ".")
    if not place.exists():
        raise InputError(
            f"{place}: does not exist; expected a ledger, a job's directory or a directory of "
            "jobs, such as `proctor view jobs/nightly`"
        )
    if is_ledger(place) or (place / "entries").is_dir():
        _check_ledger(place)
        return DataSource(ledger=place.resolve())
    place = place.resolve()
    jobs = find_jobs(place)
    if jobs != [place]:
        return DataSource(jobs=tuple(jobs), root=place)
    try:
        load_job(str(place))
    except JobError as error:
        raise InputError(f"{error}; not a ledger either") from error
    return DataSource(jobs=(place,))


def _check_ledger(place: Path) -> None:
    """Refuse what no page can show; a damaged ledger is shown as damaged."""
    try:
        with open_reader(place):
            return
    except (DamageError, NoteError):
        return
    except LedgerError:
        if is_ledger(place) or not has_lines(place):
            raise
