"""`proctor check` of a whole ledger. Separate from `checks`, because claims do not need it."""

from collections.abc import Iterator, Sequence

from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.errors import KeyFileError
from proctor.ledger.claims.trust import load_verifier_key
from proctor.ledger.verification.damage import Damage
from proctor.ledger.verification.verify import Verification, verify_ledger
from proctor.sentence import count_of


def check_ledger_directory(path: str, given: Sequence[str] = ()) -> Checked:
    """Verify a ledger completely."""
    keys = [load_verifier_key(key) for key in given]
    if len(keys) > 1:
        raise KeyFileError(f"{path}: {len(keys)} keys were given; pass one, the key of the ledger")
    found = verify_ledger(path, key=keys[0] if keys else None)
    tally = Tally()
    tally.add(map(_judge, found.damage))
    tally.add(Diagnostic("note", note, is_problem=False) for note in found.notes)
    return Checked(
        path=path,
        thing=FileKind.LEDGER,
        summary=_summarize(found),
        diagnostics=tally.kept,
        more=tally.more,
        unchecked=tuple(_find_unchecked(found)),
    )


def _judge(damage: Damage) -> Diagnostic:
    return Diagnostic(str(damage.kind), f"{damage.where}: {damage.message}")


def _summarize(found: Verification) -> str:
    entries = count_of(found.size, "entry", "entries")
    parts = [
        f"{found.origin or 'no checkpoint'}, {entries}, {count_of(found.artifacts, 'artifact')}"
    ]
    if found.withheld or found.withheld_artifacts:
        parts.append(
            f"{found.withheld:,} withheld, with {count_of(found.withheld_artifacts, 'artifact')}"
        )
    return ", ".join(parts)


def _find_unchecked(found: Verification) -> Iterator[str]:
    if not found.is_key_given:
        yield (
            f"whose ledger it is: no --key was given, and {found.key or 'no key'} is only what its "
            "first entry names; its owner prints the key with `proctor ledger key`"
        )
    yield (
        "that its owner did not cut or rewrite it: "
        "`proctor ledger verify --since CHECKPOINT` checks that"
    )
