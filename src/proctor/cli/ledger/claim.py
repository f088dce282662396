"""`proctor ledger claim`: a score with its proofs, in one file."""

from pathlib import Path

import click
import msgspec

from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.cli.printable import printable
from proctor.cli.stdout import send_bytes
from proctor.ledger.claims.checks import render_basis, render_counts, render_score
from proctor.ledger.claims.claim import Claim
from proctor.ledger.claims.claiming import Wishes, make_claim
from proctor.ledger.claims.document import pack, render_document
from proctor.ledger.claims.proof import load_checkpoint
from proctor.ledger.claims.standing import Scope
from proctor.reward.metric import DEFAULT_METRIC, METRICS


@click.command("claim")
@click.option("--experiment", required=True, help="Whose trials are claimed.")
@click.option("--dataset", help="Only trials of this dataset, as `board` lists it.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=click.Choice(list(METRICS)),
    default=[DEFAULT_METRIC],
    show_default=True,
    help="What is computed of each group; may be given several times.",
)
@click.option("--planned", type=click.IntRange(min=0), help="Trials that were to be run.")
@click.option("--sealed-only", is_flag=True, help="Leave out trials whose records are partial.")
@click.option("--checkpoint", type=PATH, help="Claim under this one, such as a cosigned copy.")
@click.option(
    "-o", "--output", type=PATH, help="Write it to this file; a name with .zst is compressed."
)
@ledger_option
@json_option
def command(
    experiment: str,
    dataset: str | None,
    metrics: tuple[str, ...],
    planned: int | None,
    sealed_only: bool,
    checkpoint: str | None,
    output: str | None,
    directory: str | None,
    as_json: bool,
) -> int:
    """Pack a score, the entries it rests on, their proof and the checkpoint into one file.

    Every trial of the experiment is in it: counted, superseded, an earlier attempt, withheld or,
    with --sealed-only, left out as diagnostic. A stranger checks it without the ledger, with
    `proctor check CLAIM --key PUB`. It cannot show what is not in it: that takes the ledger.

    Example: proctor ledger claim --experiment nightly -o claim.json.zst
    """
    scope = Scope(experiment, dataset, sealed_only)
    wishes = Wishes(scope=scope, metrics=tuple(dict.fromkeys(metrics)), planned=planned)
    with open_ledger(directory) as ledger:
        newest = ledger.refresh()
        under = load_checkpoint(checkpoint) if checkpoint is not None else newest
        claim = make_claim(ledger, wishes, under)
        data = render_document(claim)
        if output is not None:
            written = pack(data) if output.endswith(".zst") else data
            write_new_file(Path(output), written, [str(ledger.directory)])
    if as_json:
        print_json(_facts(claim) | ({"path": output} if output else {"claim": data.decode()}))
    elif output is not None:
        _print(claim, output)
    else:
        send_bytes(data)
        click.echo(printable(f"proctor: {render_counts(claim.counts)}"), err=True)
    return 0


def _facts(claim: Claim) -> dict[str, object]:
    return {
        "experiment": claim.experiment,
        "dataset": claim.dataset,
        "counts": msgspec.to_builtins(claim.counts),
        "outcome": msgspec.to_builtins(claim.certificate.outcome),
    }


def _print(claim: Claim, output: str) -> None:
    print_line(f"{output}: written; `proctor check {output} --key PUB` checks it")
    print_line(f"  {render_score(claim)}")
    for line in render_basis(claim):
        print_line(f"  {line}")
