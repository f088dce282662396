"""`proctor ledger seal`: seals records and trials with their evidence."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from proctor.cli.ledger.options import (
    choose_directory,
    extend_option,
    json_option,
    key_option,
    ledger_option,
)
from proctor.cli.ledger.progress import make_progress
from proctor.cli.ledger.secrets import read_secrets
from proctor.cli.ledger.target import open_target
from proctor.cli.options import PATH
from proctor.cli.output import print_json, print_line
from proctor.cli.redaction import secret_option
from proctor.errors import ConflictError, InputError, KeyFileError, NotSealedError
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.ledger.belonging import Admission
from proctor.ledger.log import is_ledger
from proctor.ledger.reader import LedgerWriter
from proctor.ledger.sealing import (
    Sealed,
    Secrets,
    Submission,
    check_submission,
    seal,
)
from proctor.search.background import update_in_background
from proctor.sentence import printable

# Trials sealed with one signature.
_TOGETHER = 100
_SOME_REFUSED = 3
# Characters of a digest that are shown; --json has all of them.
_SHOWN = 16


@dataclass(frozen=True, slots=True)
class _Refused:
    """A thing that was not sealed, and why."""

    where: str
    message: str
    is_conflict: bool


@dataclass(frozen=True, slots=True)
class _Target:
    """Where trials are sealed, and which are admitted."""

    directory: str | None
    key_file: str | None
    admission: Admission | None
    """None: trials of any experiment."""

    def admits(self, ledger: LedgerWriter, submission: Submission, refused: list[_Refused]) -> bool:
        """Whether a trial belongs to its experiment; if not, it is added to `refused`."""
        try:
            if self.admission is not None:
                self.admission.check(ledger, submission)
        except NotSealedError as error:
            refused.append(_Refused(submission.where, str(error), is_conflict=False))
            return False
        return True


@click.command("seal")
@click.argument("things", nargs=-1, required=True, type=PATH, metavar="THING…")
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
    """Seal records or trials with their evidence; create the ledger if it is missing.

    THING is a record file, whose evidence is the files that it names and that are beside it, or a
    trial directory, all of whose files are evidence. A trial run by proctor has a record; for any
    other harbor trial, a record is made under --experiment, complete only with --task. Kept
    attempts are sealed with their trial.

    A complete record is `sealed`, a partial one `diagnostic`. What is already sealed is left
    unchanged. The same trial with different bytes is refused, and so is anything that contains the
    value of a --secret-env. A refusal does not stop the others: the exit code is then 3, or 2 if
    nothing was sealed.

    Example: proctor ledger seal jobs/nightly/fix-bug__a1B2c3D --experiment nightly
    """
    secrets = read_secrets(secret_names)
    asked = SealOptions(experiment=experiment, task=task, dataset_id=dataset_id)
    refused: list[_Refused] = []
    # Before the ledger is created: a typing error must not leave an empty one.
    submissions: list[Submission] = []
    progress = make_progress()
    for number, thing in enumerate(things):
        progress("read", number, len(things))
        submissions += _find(thing, asked, refused)
    progress("read", len(things), len(things))
    sealed: list[Sealed] = []
    if submissions:
        target = _Target(directory, key_file, None if extend_experiment else Admission())
        sealed = _seal(target, submissions, secrets, refused)
    if sealed:
        update_in_background(choose_directory(directory))
    if as_json:
        print_json(_document(sealed, refused))
    else:
        _print(sealed, refused)
    if not refused:
        return 0
    return _SOME_REFUSED if sealed else 2


def _find(thing: str, asked: SealOptions, refused: list[_Refused]) -> Iterator[Submission]:
    try:
        yield from find_submissions(Path(thing), asked)
    except InputError as error:
        refused.append(_Refused(thing, str(error), is_conflict=False))


def _seal(
    target: _Target, submissions: list[Submission], secrets: Secrets, refused: list[_Refused]
) -> list[Sealed]:
    place = choose_directory(target.directory)
    # Only for a new ledger: otherwise sealing makes the same checks.
    if not is_ledger(place):
        submissions = [each for each in submissions if _is_sealable(each, secrets, refused)]
    if not submissions:
        return []
    with open_target(target.directory, target.key_file) as ledger:
        sealed: list[Sealed] = []
        submissions = [each for each in submissions if target.admits(ledger, each, refused)]
        progress = make_progress()
        for begin in range(0, len(submissions), _TOGETHER):
            progress("sealed", begin, len(submissions))
            batch = submissions[begin : begin + _TOGETHER]
            sealed += _seal_batch(ledger, batch, secrets, refused)
        progress("sealed", len(submissions), len(submissions))
    return sealed


def _is_sealable(submission: Submission, secrets: Secrets, refused: list[_Refused]) -> bool:
    """Check a submission before the ledger is created: an empty one must not be left behind."""
    try:
        check_submission(submission, secrets)
    except InputError as error:
        refused.append(_Refused(submission.where, str(error), is_conflict=False))
        return False
    return True


def _seal_batch(
    ledger: LedgerWriter, batch: list[Submission], secrets: Secrets, refused: list[_Refused]
) -> list[Sealed]:
    """Seal a batch with one signature; if one is refused, seal them one by one."""
    try:
        return seal(ledger, batch, secrets)
    # Without a key every single attempt would fail the same way.
    except KeyFileError:
        raise
    except InputError as error:
        if len(batch) == 1:
            is_conflict = isinstance(error, ConflictError)
            refused.append(_Refused(batch[0].where, str(error), is_conflict))
            return []
    return [each for one in batch for each in _seal_batch(ledger, [one], secrets, refused)]


def _document(sealed: list[Sealed], refused: list[_Refused]) -> dict[str, object]:
    return {
        "sealed": [
            {
                "seq": each.seq,
                "experiment_id": each.experiment_id,
                "trial_id": each.trial_id,
                "record": each.record,
                "status": each.status,
                "is_new": each.is_new,
            }
            for each in sealed
        ],
        "refused": [
            {"path": each.where, "message": each.message, "is_conflict": each.is_conflict}
            for each in refused
        ],
    }


def _print(sealed: list[Sealed], refused: list[_Refused]) -> None:
    for each in sealed:
        name = f"{each.experiment_id}/{each.trial_id}"
        print_line(f"{name}: {_render(each)}, entry {each.seq}, {each.record[:_SHOWN]}…")
    for wrong in refused:
        click.echo(f"proctor: {printable(wrong.message)}", err=True)
    if len(sealed) + len(refused) > 1:
        new = sum(each.is_new for each in sealed)
        parts = {"sealed": new, "sealed before": len(sealed) - new, "refused": len(refused)}
        print_line(", ".join(f"{number:,} {what}" for what, number in parts.items() if number))


def _render(sealed: Sealed) -> str:
    if sealed.is_new:
        return sealed.status
    if sealed.status == "withheld":
        return "sealed already, and withheld since"
    return "sealed already"
