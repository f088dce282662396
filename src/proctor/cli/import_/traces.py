"""`proctor import traces`: loose trajectories, conversations and ATIF files."""

from datetime import UTC, datetime
from pathlib import Path

import click

from proctor.cli.import_.taking import bring_in, print_reconciliation
from proctor.cli.ledger.options import json_option, key_option, ledger_option
from proctor.cli.ledger.secrets import find_secrets
from proctor.cli.options import PATH
from proctor.cli.redaction import secret_option
from proctor.errors import InputError
from proctor.importers.traces import TracesAsked, find_traces
from proctor.sentence import count_of

_NOUN = "trace"


@click.command("traces")
@click.argument("root", type=PATH, metavar="DIR")
@click.option(
    "--experiment", metavar="ID", help="Experiment of all.  [default: the directory's name]"
)
@click.option("--task", metavar="NAME", help="The task that was sat.")
@click.option("--dataset-id", help="name@version of the dataset that the task is from.")
@click.option("--model", metavar="NAME", help="The model, where a trace names none.")
@click.option("--agent", metavar="NAME", help="The agent that ran.")
@click.option("--when", metavar="TIME", help="When those ran that tell no time: ISO 8601, UTC.")
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

    Trajectories and conversations (.jsonl) and ATIF files (.json) are told by what is in them;
    other files, links and hidden names are passed over. Files called trajectory.jsonl,
    conversation.jsonl and trajectory.json that lie together are one run's. A trial is named after
    its path. A trace that is refused does not stop the others: exit 3 then, and 2 where nothing was
    sealed.

    Example: proctor import traces runs/ --model acme/model-x --task fix-bug
    """
    secrets = find_secrets(secret_names)
    asked = TracesAsked(
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
    try:
        moment = datetime.fromisoformat(written)
    except ValueError as error:
        raise InputError(
            f"--when {written!r}: expected a time such as 2026-11-15T18:56Z"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
