"""`proctor ledger prove`: writes proofs that can be checked without the ledger."""

from pathlib import Path

import click

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
from proctor.ledger.claims.document import render_document
from proctor.ledger.claims.proof import (
    ConsistencyProof,
    InclusionProof,
    Proof,
    load_checkpoint,
    make_consistency,
    make_inclusion,
)
from proctor.ledger.note import parse_checkpoint
from proctor.ledger.query import resolve_name


@click.command("prove")
@click.argument("trial", required=False)
@click.option(
    "--since",
    type=PATH,
    metavar="CHECKPOINT",
    help="Prove that the ledger only grew since CHECKPOINT.",
)
@click.option(
    "--checkpoint", type=PATH, help="Prove against this checkpoint, such as an older copy."
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    help="Write the proof to this file, never over another; - for stdout.  [default: TRIAL.proof"
    ".json, or growth-FROM-TO.proof.json]",
)
@ledger_option
@sample_option
@json_option
def command(
    trial: str | None,
    since: str | None,
    checkpoint: str | None,
    output: str | None,
    directory: str | None,
    as_json: bool,
) -> int:
    """Prove that an entry is in the ledger, or that the ledger only grew.

    TRIAL is a trial id, EXPERIMENT/TRIAL, or an entry number. The proof contains the entry, the
    path to the root, and the signed checkpoint; `proctor check PROOF --key PUB` needs nothing else.
    `proctor ledger key` prints the public key PUB. With --json and without -o, no file is written:
    the document contains the proof.

    Example: proctor ledger prove fix-bug__a1B2c3D
    """
    if (trial is None) == (since is None):
        raise click.UsageError("expected TRIAL or --since CHECKPOINT, one of the two")
    with open_ledger(directory) as ledger:
        newest = ledger.refresh()
        base = load_checkpoint(checkpoint) if checkpoint is not None else newest
        if since is not None:
            proof: Proof = make_consistency(ledger, load_checkpoint(since), base)
        else:
            found = resolve_name(ledger, trial or "")
            seq = found if isinstance(found, int) else found.seq
            proof = make_inclusion(ledger, seq, base)
        data = render_document(proof)
        written = None
        if output is None and not as_json:
            if isinstance(proof, InclusionProof):
                number = (trial or "").isdecimal()
                name = f"entry-{trial}" if number else (trial or "").rpartition("/")[2]
            else:
                name = f"growth-{_size_of(proof.older)}-{_size_of(proof.newer)}"
            written = write_numbered_file(name, ".proof.json", data, [ledger.where])
        elif output not in (None, STDOUT):
            write_new_file(Path(written := str(output)), data, [ledger.where])
        key = load_public_key(ledger)
    if as_json:
        facts: dict[str, object] = {"kind": proof.kind}
        if isinstance(proof, InclusionProof):
            facts |= {"seq": proof.seq, "kept_back": proof.line is None}
        print_json(facts | ({"path": written} if written else {"proof": data.decode()}))
    elif written is not None:
        print_line(f"{written}: {_summarize(proof)}")
        under = proof.checkpoint if isinstance(proof, InclusionProof) else proof.newer
        print_line(f"check it: {render_check(written, under, key)}")
    else:
        send_bytes(data)
    return 0


def _size_of(checkpoint: str) -> int:
    return parse_checkpoint(checkpoint.encode(), "the proof").tree.size


def _summarize(proof: Proof) -> str:
    match proof:
        case InclusionProof():
            what = "its hash only" if proof.line is None else "with the entry"
            size = _size_of(proof.checkpoint)
            return f"proves that entry {proof.seq} is one of {size:,} in the ledger, {what}"
        case ConsistencyProof():
            older, newer = _size_of(proof.older), _size_of(proof.newer)
            return f"proves that the ledger only grew, from {older:,} to {newer:,} entries"
