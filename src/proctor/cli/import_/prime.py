"""`proctor import prime`: imports the hosted samples of a Prime evaluation."""

import contextlib
import os
from functools import partial
from pathlib import Path

import click

from proctor.cli.import_.taking import print_reconciliation
from proctor.cli.ledger.options import key_option, ledger_option
from proctor.cli.ledger.progress import make_progress
from proctor.cli.ledger.target import open_target
from proctor.cli.options import PATH
from proctor.cli.output import json_option
from proctor.cli.stdout import print_stderr
from proctor.errors import PrimeError
from proctor.exchange.intake import Offer, seal_offers
from proctor.exchange.prime.service import KEY_VARIABLE, ask_evaluation, load_saved, open_client
from proctor.exchange.prime.trial import submit_sample
from proctor.ledger.sealing import Secrets
from proctor.record.ids import check_id, make_id
from proctor.sentence import count_of

_SOME_MISSING = 3


def _tell(sentence: str) -> None:
    print_stderr(f"proctor: {sentence}")


@click.command("prime", epilog="Example: proctor import prime EVAL_ID --experiment nightly")
@click.argument("eval_id", required=False)
@click.option(
    "-e", "--experiment", help="Seal under this experiment.  [default: prime-eval-EVAL_ID]"
)
@click.option("--evaluation-json", type=PATH, help="Read the evaluation from this file, offline.")
@click.option("--samples-json", type=PATH, multiple=True, help="Read its samples from files.")
@ledger_option
@key_option
@json_option
def command(
    eval_id: str | None,
    experiment: str | None,
    evaluation_json: str | None,
    samples_json: tuple[str, ...],
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Seal one partial record for each hosted sample of a Prime evaluation.

    The API key comes from PRIME_API_KEY, else from ~/.prime/config.json. Each trial keeps the raw
    sample, its messages as conversation.jsonl, and what was submitted. Samples are sealed as their
    pages arrive: after an interruption, run the same command again to continue; nothing is sealed
    twice. A refused sample is reported with the reason and does not stop the others: the exit code
    is then 3, as it is if another number of samples came than Prime says there are.
    `proctor import-prime-eval`, the name in aec-bench, is the same command.
    """
    if bool(evaluation_json) != bool(samples_json):
        raise click.UsageError("--evaluation-json and --samples-json must be given together")
    if not evaluation_json and not eval_id:
        raise click.UsageError(
            "no evaluation given; pass EVAL_ID, or --evaluation-json and --samples-json"
        )
    with contextlib.ExitStack() as stack:
        secrets = Secrets()
        if evaluation_json is not None:
            saved = [Path(each) for each in samples_json]
            evaluation, samples = load_saved(Path(evaluation_json), saved, eval_id)
        else:
            client = stack.enter_context(open_client(os.environ, Path.home(), _tell))
            secrets = Secrets({KEY_VARIABLE: client.key})
            evaluation, samples = ask_evaluation(client, eval_id or "")
        name = experiment or make_id(f"prime-eval-{evaluation.evaluation_id}")
        check_id(name, "--experiment")
        progress = make_progress()
        outcome = seal_offers(
            (
                Offer(f"sample {each}", partial(submit_sample, evaluation, name, each, value))
                for each, value in samples
            ),
            partial(open_target, directory, key_file),
            secrets,
            lambda done: progress("samples", done, samples.total or done + 1),
            by_evidence=True,
        )
    if not outcome.found:
        status = f"; its status is {evaluation.status}" if evaluation.status else ""
        raise PrimeError(f"evaluation {evaluation.evaluation_id} has no samples{status}")
    if outcome.reworded:
        known = count_of(outcome.reworded, "sample")
        outcome.notes.append(f"{known} already there: Prime's metadata of the evaluation changed")
    n_came = len(samples.names)
    if samples.total not in (None, n_came):
        stated = (
            f"Prime says there are {count_of(samples.total or 0, 'sample')} and gave {n_came:,}"
        )
        outcome.notes.append(f"{stated}; import again once the evaluation is finished")
    code = print_reconciliation(outcome, noun="sample", as_json=as_json, ledger=directory)
    return code or (0 if samples.total in (None, n_came) else _SOME_MISSING)
