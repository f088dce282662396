"""`proctor import inspect`: imports the samples of Inspect's logs."""

from pathlib import Path

import click

from proctor.cli.import_.taking import bring_in, print_reconciliation
from proctor.cli.ledger.options import key_option, ledger_option
from proctor.cli.options import PATH
from proctor.cli.output import json_option
from proctor.cli.redaction import read_secrets, secret_option
from proctor.exchange.inspect.reading import LogReader
from proctor.exchange.inspect.trial import InspectOptions, find_samples

_NOUN = "sample"


@click.command("inspect")
@click.argument("logs", nargs=-1, required=True, type=PATH, metavar="LOG…")
@click.option(
    "--experiment",
    metavar="ID",
    help="Seal all trials under this experiment.  [default: each task's name]",
)
@click.option(
    "--scorer",
    metavar="NAME",
    help="Use this scorer's value as the reward; NAME:PART for one part of an object.  "
    "[default: the first scorer of the task]",
)
@secret_option
@ledger_option
@key_option
@json_option
def command(
    logs: tuple[str, ...],
    experiment: str | None,
    scorer: str | None,
    secret_names: tuple[str, ...],
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Seal the samples of Inspect logs, one trial for each sample and epoch.

    LOG is an .eval or .json file, or a directory of logs; inspect_ai reads them, which comes with
    proctor[inspect] (some 250 MB). Each trial keeps its sample, and its messages as
    trajectory.jsonl. A score that is not a number is not a reward: the
    trial is not scored, with the reason. Samples that are already sealed are left unchanged, so a
    log can be imported again when it has more samples. `proctor export --format inspect` writes
    logs that Inspect opens.

    A refused sample does not stop the others: the exit code is then 3, or 2 if nothing was sealed.

    Example: proctor import inspect logs/
    """
    secrets = read_secrets(secret_names)
    asked = InspectOptions(experiment=experiment, scorer=scorer)
    with LogReader() as reader:
        found = find_samples([Path(log) for log in logs], asked, reader)
        outcome = bring_in(found.offers, directory, key_file, noun=_NOUN, secrets=secrets)
    outcome.notes += found.notes
    return print_reconciliation(outcome, noun=_NOUN, as_json=as_json, ledger=directory)
