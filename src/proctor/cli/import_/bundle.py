"""`proctor import bundle`: imports the trials of another ledger."""

from pathlib import Path

import click

from proctor.cli.ledger.options import key_option, ledger_option
from proctor.cli.ledger.target import open_target
from proctor.cli.options import PATH
from proctor.cli.output import json_option, print_json, print_line
from proctor.ledger.claims.trust import load_verifier_key
from proctor.ledger.exchange.bundle import check_bundle
from proctor.ledger.exchange.take_in import ImportedBundle, import_bundle


@click.command("bundle")
@click.argument("bundle", type=PATH)
@click.option(
    "--signed-by",
    metavar="PUB",
    help="Public key of the other ledger, as `proctor ledger key` prints it, or a file with it.",
)
@ledger_option
@key_option
@json_option
def command(
    bundle: str,
    signed_by: str | None,
    directory: str | None,
    key_file: str | None,
    as_json: bool,
) -> int:
    """Seal the trials of a bundle into this ledger, with their evidence.

    Everything in the bundle is checked first: the leaves must give the signed root, and the
    evidence must match its digests. Without --signed-by, the key named in the bundle is used, which
    proves that the bundle is intact but not who signed it. Trials that are already sealed here are
    left unchanged. A trial that was superseded by a trial left out of the bundle is refused.

    Example: proctor import bundle nightly.tar.zst --signed-by owner.pub
    """
    path = Path(bundle)
    key = load_verifier_key(signed_by) if signed_by else None
    # Before the ledger is created: a bad bundle must not leave an empty one.
    check_bundle(path, key)
    with open_target(directory, key_file) as ledger:
        taken = import_bundle(ledger, path, key)
    if as_json:
        print_json(_document(taken))
    else:
        _print(taken, is_trusted=key is not None)
    return 0


def _document(taken: ImportedBundle) -> dict[str, object]:
    return {
        "origin": taken.bundle.checkpoint.origin,
        "signer": str(taken.bundle.signer),
        "size": taken.bundle.checkpoint.tree.size,
        "sealed": taken.new,
        "sealed_before": taken.known,
        "left_out": taken.bundle.left_out,
        "withheld": len(taken.bundle.withheld),
        "remarks": taken.remarks,
        "evidence_missing": taken.without,
    }


def _print(taken: ImportedBundle, *, is_trusted: bool) -> None:
    bundle = taken.bundle
    print_line(f"from        {bundle.checkpoint.origin}, {bundle.checkpoint.tree.size} entries")
    trust = "as given" if is_trusted else "the key that the bundle names"
    print_line(f"signed by   {bundle.signer} ({trust})")
    print_line(f"trials      {taken.new} sealed, {taken.known} sealed before")
    if bundle.left_out or bundle.withheld:
        print_line(f"not in it   {bundle.left_out} left out, {len(bundle.withheld)} withheld")
    if taken.remarks:
        print_line(f"later       {taken.remarks}")
    if taken.without:
        print_line(f"evidence    {taken.without} files are not in the bundle; recorded as withheld")
