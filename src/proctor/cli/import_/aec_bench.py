"""`proctor import aec-bench`: a tree of aec-bench's records."""

from itertools import batched
from pathlib import Path

import click

from proctor.cli.ledger.options import json_option, key_option, ledger_option
from proctor.cli.ledger.target import open_target
from proctor.cli.options import PATH
from proctor.cli.output import print_json, print_line
from proctor.errors import InputError
from proctor.importers.aec_bench import find_records, submit_record
from proctor.ledger.ledger import Ledger
from proctor.ledger.sealing import Sealed, Submission, seal

_TOGETHER = 100
"""Trials that share a signature."""
_SOME_REFUSED = 3


@click.command("aec-bench")
@click.argument("tree", type=PATH)
@ledger_option
@key_option
@json_option
def command(tree: str, directory: str | None, key_file: str | None, as_json: bool) -> int:
    """Seal the records of a tree: EXPERIMENT/TRIAL.json, and the files in _artifacts/TRIAL.

    All three generations of the format are read. A record that is refused is named with the reason
    and does not stop the others: exit 3 then, and 2 where nothing was sealed.

    Example: proctor import aec-bench ~/ledger
    """
    records = find_records(Path(tree))
    sealed: list[Sealed] = []
    refused: list[str] = []
    with open_target(directory, key_file) as ledger:
        for batch in batched(records, _TOGETHER):
            sealed += _seal_batch(ledger, batch, refused)
    if as_json:
        print_json({"sealed": [_document(one) for one in sealed], "refused": refused})
    else:
        new = sum(one.is_new for one in sealed)
        print_line(f"{len(records)} records: {new} sealed, {len(sealed) - new} sealed before")
        for sentence in refused:
            print_line(f"refused: {sentence}")
    if not refused:
        return 0
    return _SOME_REFUSED if sealed else 2


def _document(sealed: Sealed) -> dict[str, object]:
    return {
        "experiment_id": sealed.experiment_id,
        "trial_id": sealed.trial_id,
        "record": sealed.record,
        "status": sealed.status,
        "is_new": sealed.is_new,
    }


def _seal_batch(ledger: Ledger, records: tuple[Path, ...], refused: list[str]) -> list[Sealed]:
    submissions = [found for path in records for found in _submit(path, refused)]
    try:
        return seal(ledger, submissions)
    except InputError:
        # One of them; each by itself shows which.
        return [one for each in submissions for one in _seal_one(ledger, each, refused)]


def _submit(path: Path, refused: list[str]) -> list[Submission]:
    try:
        return [submit_record(path)]
    except InputError as error:
        refused.append(str(error))
        return []


def _seal_one(ledger: Ledger, submission: Submission, refused: list[str]) -> list[Sealed]:
    try:
        return seal(ledger, [submission])
    except InputError as error:
        refused.append(str(error))
        return []
