"""`proctor check` of a bundle."""

from collections.abc import Sequence
from pathlib import Path

from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.errors import DamageError, KeyFileError
from proctor.ledger.claims.trust import load_verifier_key
from proctor.ledger.exchange.bundle import check_bundle
from proctor.sentence import count_of


def check_bundle_file(path: str, given: Sequence[str] = ()) -> Checked:
    """Check a bundle: its lines have the signed root, its evidence has its digests.

    Raises:
        InputError: it cannot be read, is not a bundle, or several keys were given.
    """
    if len(given) > 1:
        raise KeyFileError(f"{path}: {len(given)} keys were given; a bundle has one signer")
    key = load_verifier_key(given[0]) if given else None
    tally = Tally()
    summary = "not what its checkpoint signs"
    unchecked: tuple[str, ...] = ()
    try:
        found = check_bundle(Path(path), key)
    except DamageError as error:
        tally.add([Diagnostic("damaged", str(error))])
    else:
        entries = count_of(found.checkpoint.tree.size, "entry", "entries")
        parts = [
            f"{found.checkpoint.origin}, {entries}",
            count_of(found.trials, "trial"),
            count_of(len(found.artifacts), "file") + " of evidence",
        ]
        if found.left_out or found.withheld:
            parts.append(f"{found.left_out:,} left out, {len(found.withheld):,} withheld")
        if missing := len(found.named.keys() - found.artifacts):
            parts.append(f"{count_of(missing, 'file')} of evidence not in it")
        summary = ", ".join(parts)
        if key is None:
            unchecked = (
                f"who signed it: it names its own key, {found.signer}; pass --key, which the "
                "ledger's owner prints with `proctor ledger key`",
            )
    return Checked(
        path=path,
        thing=FileKind.BUNDLE,
        summary=summary,
        diagnostics=tally.kept,
        more=tally.more,
        unchecked=unchecked,
    )
