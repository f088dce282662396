"""Checks that named witnesses cosigned a checkpoint that covers every sealed trial."""

from collections.abc import Iterable, Iterator

from proctor.errors import SignatureError
from proctor.ledger.note import VerifierKey, parse_verifier_key
from proctor.ledger.signature import check_signature
from proctor.report.policy.model import Policy
from proctor.report.policy.reason import PolicyCode
from proctor.report.policy.submission import SealedIn, Submission
from proctor.report.policy.verdict import Failure, Unchecked
from proctor.sentence import count_of


def check_witnesses(policy: Policy, submission: Submission) -> Iterator[Failure | Unchecked]:
    """Enough different witnesses cosigned a checkpoint that covers the submission."""
    rule, sealed = policy.witnesses, submission.sealed
    if sealed is None:
        message = "the policy requires witnesses of a ledger; pass --ledger"
        yield Failure(PolicyCode.NO_LEDGER, None, message)
        return
    keys = [parse_verifier_key(key) for key in rule.keys]
    found = count_witnesses(key for key in keys if _did_cosign(key, sealed))
    if found < (rule.quorum or 0):
        yield Failure(PolicyCode.TOO_FEW_WITNESSES, None, _explain(found, rule.quorum or 0, sealed))


def count_witnesses(keys: Iterable[VerifierKey]) -> int:
    """The number of different witnesses: keys with the same name or public key are one witness."""
    groups: list[set[object]] = []
    for key in keys:
        marks: set[object] = {key.name, key.public}
        # Merged transitively: A and B may share a name, B and C a key.
        same = [group for group in groups if group & marks]
        groups = [group for group in groups if group not in same]
        groups.append(marks.union(*same))
    return len(groups)


def _did_cosign(key: VerifierKey, sealed: SealedIn) -> bool:
    # Nobody cosigned a damaged ledger as it is now, and its owner is not a witness.
    if sealed.damage or key.public in sealed.log_keys:
        return False
    for checkpoint in sealed.kept:
        if checkpoint.tree.size < sealed.covered:
            continue
        try:
            check_signature(checkpoint, key, "the checkpoint")
        except SignatureError:
            continue
        return True
    return False


def _explain(found: int, quorum: int, sealed: SealedIn) -> str:
    said = f"{found} of the policy's witnesses cosigned; expected {quorum}"
    if sealed.damage:
        return f"{said}; the ledger is damaged, so no cosignature counts"
    if not sealed.kept:
        return f"{said}; pass --since with a cosigned copy of the ledger's checkpoint"
    short = sum(checkpoint.tree.size < sealed.covered for checkpoint in sealed.kept)
    if short:
        copies = count_of(short, "checkpoint")
        said += f"; {copies} passed with --since covers fewer than {sealed.covered:,} entries"
    return said
