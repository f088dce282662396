"""`proctor ledger sync`: fetches the copy of a served ledger, and sends what waits."""

import contextlib
import os

import click

from proctor.cli.ledger.options import choose_directory, ledger_option
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.stdout import print_stderr
from proctor.errors import LedgerError
from proctor.ledger.keys import find_key
from proctor.ledger.ledger import REMOTE
from proctor.ledger.place import open_reader
from proctor.ledger.remote.connections import UnreachableError
from proctor.ledger.remote.mirror import connect
from proctor.sentence import count_of

_SOME_REFUSED = 3


@click.command("sync")
@ledger_option
@json_option
def command(directory: str | None, as_json: bool) -> int:
    """Fetch what is new in a served ledger, and send queued entries.

    If the server of a run cannot be reached, the run continues and queues its trials on this
    machine. They are sent by this command, or before the next trials. The server never seals a
    trial twice. Trials that it refuses are kept separately, with the reason; the exit code is then
    3.

    Example: proctor ledger sync --ledger https://ledger.example.org
    """
    place = choose_directory(directory)
    if not os.path.lexists(place / REMOTE):
        # Says so first if there is no ledger at all.
        open_reader(place).close()
        raise LedgerError(f"{place}: a ledger of this machine; there is nothing to fetch or send")
    with open_reader(place) as ledger, contextlib.closing(connect(place)) as remote:
        if len(remote.spool):
            # What waits is taken from an enrolled machine only.
            remote.check_writable(find_key(None, os.environ))
        try:
            sent = remote.send_waiting()
        except UnreachableError as error:
            raise LedgerError(f"{error}; {len(remote.spool):,} entries are queued") from error
        remote.fetch(ledger, is_forced=True)
        ledger.refresh()
        size = ledger.checkpoint().tree.size
    if as_json:
        print_json({"url": remote.url, "size": size, "sent": sent, "refused": remote.refused})
    else:
        print_line(f"{remote.url}: {count_of(size, 'entry', 'entries')}, {sent:,} sent")
        for sentence in remote.refused:
            print_stderr(sentence)
    return _SOME_REFUSED if remote.refused else 0
