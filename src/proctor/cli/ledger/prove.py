"""`proctor ledger prove`: writes proofs that can be checked without the ledger."""

from pathlib import Path

import click

from proctor.cli.ledger.options import ledger_option, open_ledger
from proctor.cli.options import PATH, check_apart
from proctor.cli.output import json_option, print_json, print_line, write_new_file
from proctor.cli.stdout import send_bytes
from proctor.ledger.claims.document import render_document
from proctor.ledger.claims.proof import (
    ConsistencyProof,
    InclusionProof,
    Proof,
    load_checkpoint,
    make_consistency,
    make_inclusion,
)
from proctor.ledger.query import resolve_name
from proctor.ledger.reader import LedgerReader


@click.command("prove")
@click.argument("trial", required=False)
@click.option(
    "--since",
    type=PATH,
    metavar="CHECKPOINT",
    help="Prove that the ledger only grew since CHECKPOINT.",
)
@click.option(
    "--checkpoint", type=PATH, help="Prove against this checkpoint, such as a cosigned copy."
)
@click.option(
    "--leaf-only",
    is_flag=True,
    help="Include only the hash of the entry in the proof, not the entry.",
)
@click.option(
    "-o", "--output", type=PATH, help="Write the proof to this file; never overwrite one."
)
@ledger_option
@json_option
def command(
    trial: str | None,
    since: str | None,
    checkpoint: str | None,
    leaf_only: bool,
    output: str | None,
    directory: str | None,
    as_json: bool,
) -> int:
    """Prove that an entry is in the ledger, or that the ledger only grew.

    TRIAL is a trial id, EXPERIMENT/TRIAL, or an entry number. The proof contains the entry, the
    path to the root, and the signed checkpoint; `proctor check PROOF --key PUB` needs nothing else.

    Example: proctor ledger prove fix-bug__a1B2c3D -o proof.json
    """
    if (trial is None) == (since is None):
        raise click.UsageError("expected TRIAL or --since CHECKPOINT, one of the two")
    check_apart("leaf_only", "since")
    with open_ledger(directory) as ledger:
        proof = _prove(ledger, trial, since, checkpoint, leaf_only=leaf_only)
        data = render_document(proof)
        if output is not None:
            write_new_file(Path(output), data, [ledger.where])
    if as_json:
        print_json(_facts(proof) | ({"path": output} if output else {"proof": data.decode()}))
    elif output is not None:
        print_line(f"{output}: written; `proctor check {output} --key PUB` checks it")
    else:
        send_bytes(data)
    return 0


def _prove(
    ledger: LedgerReader,
    trial: str | None,
    since: str | None,
    checkpoint: str | None,
    *,
    leaf_only: bool,
) -> Proof:
    newest = ledger.refresh()
    under = load_checkpoint(checkpoint) if checkpoint is not None else newest
    if since is not None:
        return make_consistency(ledger, load_checkpoint(since), under)
    found = resolve_name(ledger, trial or "")
    seq = found if isinstance(found, int) else found.seq
    return make_inclusion(ledger, seq, under, leaf_only=leaf_only)


def _facts(proof: Proof) -> dict[str, object]:
    match proof:
        case InclusionProof():
            is_kept_back = proof.line is None
            return {"kind": proof.kind, "seq": proof.seq, "kept_back": is_kept_back}
        case ConsistencyProof():
            return {"kind": proof.kind}
