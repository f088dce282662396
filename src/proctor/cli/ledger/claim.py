"""`proctor ledger claim`: writes a score with its proofs to one file."""

from pathlib import Path

import click
import msgspec

from proctor.cli.ledger.key import load_public_key, render_check
from proctor.cli.ledger.options import (
    ledger_option,
    open_ledger,
)
from proctor.cli.options import PATH, STDOUT, sample_option
from proctor.cli.output import (
    json_option,
    print_json,
    print_line,
    write_new_file,
    write_numbered_file,
)
from proctor.cli.stdout import send_bytes
from proctor.ledger.claims.checks import render_basis, render_counts, render_score
from proctor.ledger.claims.claim import ClaimOptions, make_claim
from proctor.ledger.claims.document import pack, render_document
from proctor.ledger.claims.proof import load_checkpoint
from proctor.ledger.claims.trials import Scope
from proctor.reward.metric import DEFAULT_METRIC, METRICS
from proctor.sentence import printable


@click.command("claim")
@click.option("--experiment", required=True, help="Claim the trials of this experiment.")
@click.option("--dataset", help="Include only trials of this dataset, as listed by `board`.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=click.Choice(list(METRICS)),
    default=[DEFAULT_METRIC],
    show_default=True,
    help="Metric to compute for each group; can be repeated.",
)
@click.option("--planned", type=click.IntRange(min=0), help="Number of trials planned.")
@click.option("--sealed-only", is_flag=True, help="Leave out trials whose records are partial.")
@click.option(
    "--checkpoint", type=PATH, help="Claim against this checkpoint, such as an older copy."
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="Write the claim to this file, compressed if the name ends in .zst; - for stdout."
    "  [default: EXPERIMENT.claim.json]",
)
@ledger_option
@sample_option
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
    """Pack a score, its entries, their proof and the checkpoint into one file.

    The claim contains every trial of the experiment: counted, superseded, an earlier attempt,
    withheld or, with --sealed-only, left out as diagnostic. Anyone can check it without the ledger:
    `proctor check CLAIM --key PUB`, where PUB is the public key that `proctor ledger key` prints. A
    claim cannot show what is not in it: that requires the ledger. With --json and without -o, no
    file is written: the document contains the claim.

    Example: proctor ledger claim --experiment nightly
    """
    scope = Scope(experiment, dataset, sealed_only)
    options = ClaimOptions(scope=scope, metrics=tuple(dict.fromkeys(metrics)), planned=planned)
    with open_ledger(directory) as ledger:
        newest = ledger.refresh()
        under = load_checkpoint(checkpoint) if checkpoint is not None else newest
        claim = make_claim(ledger, options, under)
        data = render_document(claim)
        written = None
        if output is None and not as_json:
            written = write_numbered_file(experiment, ".claim.json", data, [ledger.where])
        elif output not in (None, STDOUT):
            written = str(output)
            packed = pack(data) if written.endswith(".zst") else data
            write_new_file(Path(written), packed, [ledger.where])
        key = load_public_key(ledger)
    if as_json:
        facts = {
            "experiment": claim.experiment,
            "dataset": claim.dataset,
            "counts": msgspec.to_builtins(claim.counts),
            "outcome": msgspec.to_builtins(claim.certificate.outcome),
        }
        print_json(facts | ({"path": written} if written else {"claim": data.decode()}))
    elif written is not None:
        print_line(f"{written}: written")
        for line in (render_score(claim), *render_basis(claim)):
            print_line(f"  {line}")
        print_line(f"check it: {render_check(written, claim.checkpoint, key)}")
    else:
        send_bytes(data)
        click.echo(printable(f"proctor: {render_counts(claim.counts)}"), err=True)
    return 0
