"""`proctor ledger verify`: verifies everything in a ledger."""

import click
import msgspec

from proctor.cli.ledger.options import choose_directory, ledger_option
from proctor.cli.ledger.progress import make_progress
from proctor.cli.options import PATH, sample_option
from proctor.cli.output import json_option, print_json, print_line
from proctor.ledger.claims.trust import load_verifier_key
from proctor.ledger.verification.verify import Verification, verify_ledger
from proctor.search.upkeep import check_search_index
from proctor.sentence import count_of

_MOST_SHOWN = 50


@click.command("verify")
@ledger_option
@sample_option
@click.option(
    "--since",
    multiple=True,
    type=PATH,
    metavar="CHECKPOINT",
    help="Require that the ledger extends this older checkpoint; can be repeated.",
)
@click.option(
    "--key",
    metavar="PUB",
    help="Public key to trust, or a file that contains it. The ledger's owner prints it with "
    "`proctor ledger key`.",
)
@click.option(
    "--fast", is_flag=True, help="Check only the chain and the signatures, not the evidence."
)
@json_option
def command(
    directory: str | None,
    since: tuple[str, ...],
    key: str | None,
    fast: bool,
    as_json: bool,
) -> int:
    """Recompute everything and report damage; exit with 1 if there is any.

    Hashes and decodes every line, rebuilds the tree, checks the signatures and key changes, and
    reads every artifact. Without --key, the first entry of the ledger names its signer: this proves
    that the ledger is consistent, not who made it. An owner who signed everything again is detected
    only with --since and a checkpoint that you kept. An index that does not match the log is
    deleted and rebuilt.

    Example: proctor ledger verify --since checkpoint-2026-11-15
    """
    place = choose_directory(directory)
    found = verify_ledger(
        place,
        key=None if key is None else load_verifier_key(key),
        since=since,
        fast=fast,
        progress=make_progress(),
    )
    if found.is_sound and not fast and (note := check_search_index(place)) is not None:
        found.notes.append(note)
    if as_json:
        print_json(_document(found))
        return 0 if found.is_sound else 1
    verdict = "sound" if found.is_sound else f"DAMAGED in {count_of(len(found.damage), 'place')}"
    print_line(f"{found.where}: {verdict}")
    for label, text in _facts(found):
        print_line(f"  {label:<9}  {text}")
    for damage in found.damage[:_MOST_SHOWN]:
        print_line(f"  {damage.kind}: {damage.where}: {damage.message}")
    if (more := len(found.damage) - _MOST_SHOWN) > 0:
        print_line(f"  … {more:,} more; --json lists them")
    for note in found.notes:
        print_line(f"  note: {note}")
    return 0 if found.is_sound else 1


def _document(found: Verification) -> dict[str, object]:
    return {
        "ledger": found.where,
        "is_sound": found.is_sound,
        "origin": found.origin,
        "size": found.size,
        "root": found.root,
        "key": found.key,
        "is_key_given": found.is_key_given,
        "is_fast": found.is_fast,
        "since": list(found.since),
        "withheld": found.withheld,
        "withheld_artifacts": found.withheld_artifacts,
        "artifacts": found.artifacts,
        "bytes_read": found.bytes_read,
        "differing": found.differing,
        "damage": [{**msgspec.to_builtins(each), "kind": str(each.kind)} for each in found.damage],
        "notes": list(found.notes),
    }


def _facts(found: Verification) -> list[tuple[str, str]]:
    whose = (
        "given with --key"
        if found.is_key_given
        else "self-signed: pass --key, which its owner prints with `proctor ledger key`"
    )
    seen = "not read (--fast)" if found.is_fast else count_of(found.artifacts, "file") + " read"
    withheld = "0 withheld"
    if found.withheld or found.withheld_artifacts:
        artifacts = count_of(found.withheld_artifacts, "artifact")
        withheld = f"{found.withheld:,} withheld, and {artifacts} of other entries"
    facts = [
        ("origin", found.origin or "unknown"),
        ("entries", f"{found.size:,}, root {found.root or 'unknown'}"),
        ("key", found.key or "unknown"),
        ("trusted", whose),
        ("evidence", seen),
        ("withheld", withheld),
    ]
    if found.is_fast:
        facts.append(("trials", "ids and duplicates not checked (--fast)"))
    if found.since:
        facts.append(("since", ", ".join(found.since)))
    else:
        facts.append(("since", "no older checkpoint was given"))
    return facts
