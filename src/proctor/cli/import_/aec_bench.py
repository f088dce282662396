"""`proctor import aec-bench`: imports a tree of aec-bench records."""

from functools import partial
from pathlib import Path

import click

from proctor.cli.import_.taking import bring_in, print_reconciliation
from proctor.cli.ledger.options import key_option, ledger_option
from proctor.cli.options import PATH
from proctor.cli.output import json_option
from proctor.exchange.aec_bench import find_records, submit_record
from proctor.exchange.intake import Offer

_NOUN = "record"


@click.command("aec-bench")
@click.argument("tree", type=PATH)
@ledger_option
@key_option
@json_option
def command(tree: str, directory: str | None, key_file: str | None, as_json: bool) -> int:
    """Seal the records of a tree: EXPERIMENT/TRIAL.json, and the files in _artifacts/TRIAL.

    Reads all three generations of the format. A refused record is reported with the reason and does
    not stop the others: the exit code is then 3, or 2 if nothing was sealed.

    Example: proctor import aec-bench ~/ledger
    """
    offers = [Offer(str(path), partial(submit_record, path)) for path in find_records(Path(tree))]
    outcome = bring_in(offers, directory, key_file, noun=_NOUN)
    return print_reconciliation(outcome, noun=_NOUN, as_json=as_json, ledger=directory)
