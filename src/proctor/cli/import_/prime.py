"""`proctor import prime`: imports the hosted samples of a Prime evaluation."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from proctor.cli.import_.taking import (
    describe_reconciliation,
    exit_code_of,
    print_reconciliation,
    render_next,
)
from proctor.cli.ledger.options import key_option, ledger_option
from proctor.cli.ledger.progress import make_progress
from proctor.cli.ledger.target import open_target
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option, print_json
from proctor.errors import PrimeError
from proctor.exchange.intake import Offer, Reconciliation, seal_offers
from proctor.exchange.prime.client import (
    DEFAULT_URL,
    KEY_VARIABLE,
    LARGEST_PAGE,
    PAGE_SIZE,
    Limits,
    ask_evaluation,
    find_access,
    list_samples,
    open_client,
)
from proctor.exchange.prime.listing import Evaluation, Listing, load_saved
from proctor.exchange.prime.sample import default_experiment
from proctor.exchange.prime.trial import submit_sample
from proctor.ledger.reader import LedgerWriter
from proctor.ledger.sealing import Secrets
from proctor.record.ids import check_id
from proctor.sentence import count_of, printable

_NOUN = "sample"
_SOME_MISSING = 3


@dataclass(frozen=True, slots=True)
class _Found:
    """An evaluation whose samples can be read."""

    evaluation: Evaluation
    samples: Listing
    secrets: Secrets
    notes: tuple[str, ...] = ()


@click.command("prime", epilog="Example: proctor import prime EVAL_ID --experiment nightly")
@click.argument("eval_id", required=False)
@click.option(
    "-e", "--experiment", help="Seal under this experiment.  [default: prime-eval-EVAL_ID]"
)
@click.option(
    "--evaluation-json",
    type=PATH,
    help="Read the evaluation from a file, without network requests.",
)
@click.option(
    "--samples-json",
    type=PATH,
    multiple=True,
    help="Read samples from a file; can be repeated for more pages.",
)
@click.option(
    "--base-url", help=f"URL of Prime's API.  [default: PRIME_API_BASE_URL, {DEFAULT_URL}]"
)
@click.option(
    "--page-size",
    type=click.IntRange(1, LARGEST_PAGE),
    default=PAGE_SIZE,
    show_default=True,
    help="Number of samples per request.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 86400),
    default=60,
    show_default=True,
    help="Timeout of one request, in seconds.",
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Number of retries per request.",
)
@ledger_option
@key_option
@json_option
def command(
    eval_id: str | None,
    experiment: str | None,
    evaluation_json: str | None,
    samples_json: tuple[str, ...],
    base_url: str | None,
    page_size: int,
    timeout: int,
    retries: int,
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Seal one partial record for each hosted sample of a Prime evaluation.

    The API key comes from PRIME_API_KEY, else from ~/.prime/config.json. Each trial keeps the raw
    sample, its messages as conversation.jsonl, and what was submitted. Samples are sealed as their
    pages arrive: after an interruption, run the same command again to continue; nothing is sealed
    twice. A refused sample is reported with the reason and does not stop the others: the exit code
    is then 3. `proctor import-prime-eval`, the name in aec-bench, is the same command.
    """
    if bool(evaluation_json) != bool(samples_json):
        raise click.UsageError("--evaluation-json and --samples-json must be given together")
    if evaluation_json is None and eval_id is None:
        raise click.UsageError(
            "no evaluation given; pass EVAL_ID, or --evaluation-json and --samples-json"
        )
    if evaluation_json is not None:
        for name in ("base_url", "page_size", "timeout", "retries"):
            check_apart(name, "evaluation_json")
        opened = _open_saved(evaluation_json, samples_json, eval_id)
    else:
        opened = _open_hosted(eval_id or "", base_url, page_size, Limits(timeout, retries))
    with opened as found:
        sealed_as = experiment or default_experiment(found.evaluation.id)
        check_id(sealed_as, "--experiment")
        outcome = _bring_in(found, sealed_as, partial(open_target, directory, key_file))
    return _conclude(found, sealed_as, outcome, directory, as_json=as_json)


@contextlib.contextmanager
def _open_saved(evaluation: str, samples: tuple[str, ...], asked: str | None) -> Iterator[_Found]:
    saved = load_saved(Path(evaluation), [Path(each) for each in samples], asked)
    yield _Found(saved.evaluation, saved.samples, Secrets(), saved.notes)


@contextlib.contextmanager
def _open_hosted(
    eval_id: str, base_url: str | None, page_size: int, limits: Limits
) -> Iterator[_Found]:
    access = find_access(base_url, os.environ, Path.home())
    with open_client(access, limits, _tell) as client:
        evaluation = ask_evaluation(client, eval_id)
        samples = list_samples(client, eval_id, evaluation, page_size)
        yield _Found(evaluation, samples, Secrets({KEY_VARIABLE: access.key}))


def _tell(sentence: str) -> None:
    click.echo(f"proctor: {printable(sentence)}", err=True)


def _bring_in(
    found: _Found, experiment: str, open_ledger: Callable[[], LedgerWriter]
) -> Reconciliation:
    """Seal the samples as they arrive."""
    samples, evaluation = found.samples, found.evaluation
    progress = make_progress()
    offers = (
        Offer(f"sample {each.name}", partial(submit_sample, evaluation, experiment, each))
        for each in samples
    )
    outcome = seal_offers(
        offers,
        open_ledger,
        found.secrets,
        lambda done: progress(f"{_NOUN}s", done, samples.total or done + 1),
        by_evidence=True,
    )
    progress(f"{_NOUN}s", outcome.found, outcome.found)
    if not outcome.found:
        status = f"; its status is {evaluation.status}" if evaluation.status else ""
        raise PrimeError(f"evaluation {evaluation.id} has no samples{status}")
    return outcome


def _conclude(
    found: _Found, experiment: str, outcome: Reconciliation, ledger: str | None, *, as_json: bool
) -> int:
    """Print the result, and whether all samples are included; returns the exit code."""
    samples = found.samples
    outcome.notes += [*found.notes, *_find_notes(samples, outcome)]
    following = render_next(outcome, ledger)
    if as_json:
        document = {
            "evaluation_id": found.evaluation.id,
            "experiment_id": experiment,
            "said_to_be": samples.total,
            **describe_reconciliation(outcome),
            "failure": None if samples.failure is None else str(samples.failure),
            "next_command": following,
        }
        print_json(document)
        code = exit_code_of(outcome)
    else:
        code = print_reconciliation(outcome, noun=_NOUN, as_json=False, ledger=ledger)
    if samples.failure is not None:
        raise PrimeError(
            f"{samples.failure}; not all samples were read: run the same command again to continue"
        )
    return code or (0 if samples.is_settled else _SOME_MISSING)


def _find_notes(samples: Listing, outcome: Reconciliation) -> Iterator[str]:
    if outcome.reworded:
        stated = count_of(outcome.reworded, "sample")
        yield f"{stated} already there: Prime's metadata of the evaluation has changed"
    if samples.failure is not None:
        return
    often = f"it was read {count_of(samples.n_readings, 'time')}"
    if samples.missing:
        stated = count_of(samples.total or 0, _NOUN)
        yield (
            f"Prime says there are {stated} and gave {len(samples.seen):,}; {often}; import again "
            "once the evaluation is finished"
        )
    elif samples.last.is_cut:
        yield f"the same samples kept repeating; {often}"
    elif not samples.is_settled:
        yield f"the list of samples changed each time, and {often}; import again later"
    elif samples.last.repeated:
        repeated = count_of(samples.last.repeated, _NOUN)
        yield f"{repeated} skipped: duplicates of others"
    elif samples.n_readings > 1:
        yield f"the list of samples changed while it was read, so {often}"
