"""A whole ledger, as `proctor check` says it. Apart from `checks`: a claim needs none of this."""

from collections.abc import Iterator, Sequence

from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.errors import KeyFileError
from proctor.ledger.claims.trust import find_verifier_key
from proctor.ledger.note import Algorithm, VerifierKey
from proctor.ledger.verification.damage import Damage
from proctor.ledger.verification.verify import Verification, verify_ledger
from proctor.sentence import count_of


def check_ledger_directory(path: str, given: Sequence[str] = ()) -> Checked:
    """A ledger, all of it recomputed.

    Raises:
        InputError: it cannot be read, or the keys do not say whose it should be.
    """
    keys = [find_verifier_key(key) for key in given]
    found = verify_ledger(path, key=_find_own(keys, path))
    tally = Tally()
    tally.add(map(_judge, found.damage))
    tally.add(Diagnostic("note", note, is_problem=False) for note in found.notes)
    return Checked(
        path=path,
        thing=FileKind.LEDGER,
        summary=_summarize(found),
        diagnostics=tally.kept,
        more=tally.more,
        unchecked=tuple(_find_unchecked(found, keys)),
    )


def _find_own(keys: Sequence[VerifierKey], path: str) -> VerifierKey | None:
    own = [key for key in keys if key.algorithm is Algorithm.ED25519]
    if len(own) > 1:
        raise KeyFileError(f"{path}: {len(own)} keys were given; a ledger has one to be trusted")
    return own[0] if own else None


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


def _find_unchecked(found: Verification, keys: Sequence[VerifierKey]) -> Iterator[str]:
    if not found.is_key_given:
        yield (
            f"whose ledger it is: no --key was given, and {found.key or 'no key'} is what its own "
            "first entry names"
        )
    if any(key.algorithm is Algorithm.COSIGNATURE for key in keys):
        yield "cosignatures: they stand under copies of checkpoints, not under a ledger's own"
    yield (
        "that its owner did not cut or rewrite it: "
        "`proctor ledger verify --since CHECKPOINT` checks that"
    )
