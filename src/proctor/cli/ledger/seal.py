"""`proctor ledger seal`: seals records and trials with their evidence; sends what waits."""

import contextlib
import os
from functools import partial
from pathlib import Path

import click
import msgspec

from proctor.cli.import_.taking import bring_in, exit_code_of
from proctor.cli.ledger.options import choose_directory, extend_option, key_option, ledger_option
from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line
from proctor.cli.redaction import read_secrets, secret_option
from proctor.cli.stdout import print_stderr
from proctor.errors import InputError, LedgerError
from proctor.exchange.intake import Offer, refuse
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.ledger.belonging import Admission
from proctor.ledger.keys import find_key
from proctor.ledger.ledger import REMOTE
from proctor.ledger.place import open_reader
from proctor.ledger.remote.connections import UnreachableError
from proctor.ledger.remote.mirror import connect
from proctor.search.upkeep import update_in_background
from proctor.sentence import count_of, printable

# Characters of a digest that are shown; --json has all of them.
_SHOWN = 16
_SOME_REFUSED = 3


@click.command("seal")
@click.argument("things", nargs=-1, type=PATH, metavar="THING…")
@click.option("--experiment", metavar="ID", help="Seal trials under this experiment.")
@extend_option
@click.option("--task", type=PATH, help="Directory of the task of a harbor trial.")
@click.option("--dataset-id", help="Dataset of the task, as name@version.")
@secret_option
@ledger_option
@key_option
@json_option
def command(
    things: tuple[str, ...],
    experiment: str | None,
    extend_experiment: bool,
    task: str | None,
    dataset_id: str | None,
    secret_names: tuple[str, ...],
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Seal records or trials with their evidence; without them, send what waits.

    THING is a record file, whose evidence is the files that it names and that are beside it, or a
    trial directory, all of whose files are evidence. A trial run by proctor has a record; for any
    other harbor trial, a record is made under --experiment, complete only with --task. Kept
    attempts are sealed with their trial. A missing ledger is created. Without THING, the trials
    that wait on this machine for a server that could not be reached are sent, as they are before
    the next ones are sealed; the server never seals a trial twice.

    A complete record is `sealed`, a partial one `diagnostic`. What is already sealed is left
    unchanged. The same trial with different bytes is refused, and so is anything that contains the
    value of a --secret-env. A refusal does not stop the others: the exit code is then 3, or 2 if
    nothing was sealed.

    Example: proctor ledger seal jobs/nightly/fix-bug__a1B2c3D --experiment nightly
    """
    if not things:
        return _send_waiting(choose_directory(directory), key_file, as_json=as_json)
    secrets = read_secrets(secret_names)
    asked = SealOptions(experiment=experiment, task=task, dataset_id=dataset_id)
    # Before the ledger is created: a typing error must not leave an empty one.
    offers: list[Offer] = []
    progress = make_progress()
    for number, thing in enumerate(things):
        progress("read", number, len(things))
        try:
            for found in find_submissions(Path(thing), asked):
                offers.append(Offer(found.where, partial(lambda each: each, found)))
        except InputError as error:
            offers.append(Offer(thing, partial(refuse, error)))
    progress("read", len(things), len(things))
    admission = None if extend_experiment else Admission()
    outcome = bring_in(offers, directory, key_file, secrets=secrets, admission=admission)
    if outcome.sealed:
        update_in_background(choose_directory(directory))
    if as_json:
        print_json(
            {
                "sealed": msgspec.to_builtins(outcome.sealed),
                "refused": [
                    {"path": each.where, "message": each.message, "is_conflict": each.is_conflict}
                    for each in outcome.refused
                ],
            }
        )
        return exit_code_of(outcome)
    for each in outcome.sealed:
        said = each.status if each.is_new else "sealed already"
        if not each.is_new and each.status == "withheld":
            said = "sealed already, and withheld since"
        name = f"{each.experiment_id}/{each.trial_id}"
        print_line(f"{name}: {said}, entry {each.seq}, {each.record[:_SHOWN]}…")
    for wrong in outcome.refused:
        click.echo(f"proctor: {printable(wrong.message)}", err=True)
    if outcome.found > 1:
        new, before = len(outcome.new), len(outcome.known)
        parts = {"sealed": new, "sealed before": before, "refused": len(outcome.refused)}
        print_line(", ".join(f"{number:,} {what}" for what, number in parts.items() if number))
    return exit_code_of(outcome)


def _send_waiting(place: Path, key_file: str | None, *, as_json: bool) -> int:
    if not os.path.lexists(place / REMOTE):
        # Says so first if there is no ledger at all.
        open_reader(place).close()
        raise LedgerError(f"{place}: a ledger of this machine: nothing waits; expected THING…")
    with open_reader(place) as ledger, contextlib.closing(connect(place)) as remote:
        if len(remote.spool):
            # What waits is taken from an enrolled machine only.
            remote.check_writable(find_key(Path(key_file) if key_file else None, os.environ))
        try:
            sent = remote.send_waiting()
        except UnreachableError as error:
            raise LedgerError(f"{error}; {len(remote.spool):,} entries are queued") from error
        remote.fetch(ledger, is_forced=True)
    if as_json:
        print_json({"url": remote.url, "sent": sent, "refused": remote.refused})
    else:
        print_line(f"{remote.url}: {count_of(sent, 'entry', 'entries')} sent")
        for sentence in remote.refused:
            print_stderr(sentence)
    return _SOME_REFUSED if remote.refused else 0
