"""`proctor import traces`: imports loose trajectories, conversations and ATIF files."""

from datetime import datetime
from pathlib import Path

import click

from proctor.cli.import_.taking import bring_in, print_reconciliation
from proctor.cli.ledger.options import key_option, ledger_option
from proctor.cli.options import PATH
from proctor.cli.output import json_option
from proctor.cli.redaction import read_secrets, secret_option
from proctor.errors import InputError
from proctor.exchange.traces import TraceOptions, find_traces
from proctor.sentence import count_of
from proctor.traces.usage import read_timestamp

_NOUN = "trace"


@click.command("traces")
@click.argument("root", type=PATH, metavar="DIR")
@click.option(
    "--experiment",
    metavar="ID",
    help="Seal all trials under this experiment.  [default: the directory's name]",
)
@click.option("--task", metavar="NAME", help="Task that was run.")
@click.option("--dataset-id", help="Dataset of the task, as name@version.")
@click.option("--model", metavar="NAME", help="Model, for traces that do not name one.")
@click.option("--agent", metavar="NAME", help="Agent that ran.")
@click.option(
    "--when", metavar="TIME", help="Time of the run, for traces that have none: ISO 8601, UTC."
)
@secret_option
@ledger_option
@key_option
@json_option
def command(
    root: str,
    experiment: str | None,
    task: str | None,
    dataset_id: str | None,
    model: str | None,
    agent: str | None,
    when: str | None,
    secret_names: tuple[str, ...],
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Seal every trace below a directory, each with a partial record.

    Trajectories and conversations (.jsonl) and ATIF files (.json) are recognized by their content;
    other files, links and hidden names are skipped. Files named trajectory.jsonl,
    conversation.jsonl and trajectory.json in the same directory belong to one run. A trial is named
    after its path. A refused trace does not stop the others: the exit code is then 3, or 2 if
    nothing was sealed.

    Example: proctor import traces runs/ --model acme/model-x --task fix-bug
    """
    secrets = read_secrets(secret_names)
    asked = TraceOptions(
        experiment=experiment,
        task=task,
        dataset_id=dataset_id,
        model=model,
        agent=agent,
        when=_parse_when(when) if when else None,
    )
    found = find_traces(Path(root), asked)
    outcome = bring_in(found.offers, directory, key_file, noun=_NOUN, secrets=secrets)
    if found.n_others:
        others = count_of(found.n_others, "other JSON file")
        outcome.notes.append(f"{root}: {others} in it, none of them a trace")
    return print_reconciliation(outcome, noun=_NOUN, as_json=as_json, ledger=directory)


def _parse_when(written: str) -> datetime:
    moment = read_timestamp(written)
    if moment is None:
        raise InputError(f"--when {written!r}: expected a time such as 2026-11-15T18:56Z")
    return moment
