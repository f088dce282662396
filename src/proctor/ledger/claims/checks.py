"""What can be said of a checkpoint, a proof or a claim, as `proctor check` says it.

Problems are what fails the check; notes say who signed and what the numbers rest on; and what was
not looked at is said too. A file that cannot be read as what it should be is refused.
"""

import contextlib
from collections.abc import Iterator, Sequence

from proctor.audit.certificate import find_unchecked
from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.errors import DamageError
from proctor.ledger.claims.attested import find_kept_back
from proctor.ledger.claims.claim import (
    Claim,
    Counts,
    carried_by,
    find_differences,
    parse_claim,
    prove_claim,
)
from proctor.ledger.claims.document import load_document
from proctor.ledger.claims.operands import FROM_BREAKDOWN, FROM_REWARD
from proctor.ledger.claims.proof import (
    ConsistencyProof,
    InclusionProof,
    load_checkpoint,
    parse_proof,
    proven_entry,
    proven_growth,
)
from proctor.ledger.claims.trust import (
    find_unchecked_signatures,
    find_verifier_key,
    judge_signatures,
)
from proctor.ledger.entry import AnyEntry, TrialEntry, record_digest
from proctor.ledger.note import Checkpoint, VerifierKey
from proctor.ledger.row import read_row
from proctor.sentence import count_of, shown

type Keys = Sequence[VerifierKey]
type Given = Sequence[str]
"""Public keys as a person gives them: their text, or a file."""

_ELSE = "that the ledger says nothing else, earlier or later, about it: that takes the ledger"


def check_checkpoint_file(path: str, given: Given = ()) -> Checked:
    """A checkpoint: its form, and the signatures of the keys that were given.

    Raises:
        InputError: it cannot be read, or is none.
    """
    keys = [find_verifier_key(key) for key in given]
    checkpoint = load_checkpoint(path)
    signers = ", ".join(line.name for line in checkpoint.signatures) or "nobody"
    return Checked(
        path=path,
        thing=FileKind.CHECKPOINT,
        summary=f"{_render_tree(checkpoint)}, signed by {signers}",
        diagnostics=tuple(judge_signatures(checkpoint, keys, "the checkpoint")),
        unchecked=(
            *find_unchecked_signatures([checkpoint], keys),
            "that a ledger of this tree is there: `proctor ledger verify --since` tells",
        ),
    )


def _render_tree(checkpoint: Checkpoint) -> str:
    tree = checkpoint.tree
    entries = count_of(tree.size, "entry", "entries")
    return f"{checkpoint.origin} with {entries} and the root {tree.root.hex()}"


def check_proof_file(path: str, given: Given = ()) -> Checked:
    """A proof, followed to the roots of the checkpoints in it.

    Raises:
        InputError: it cannot be read, or is none.
    """
    keys = [find_verifier_key(key) for key in given]
    proof = parse_proof(load_document(path), path)
    try:
        if isinstance(proof, InclusionProof):
            return _check_inclusion(proof, path, keys)
        return _check_consistency(proof, path, keys)
    except DamageError as error:
        return Checked(
            path=path,
            thing=FileKind.PROOF,
            summary="it proves nothing",
            diagnostics=(Diagnostic("not-proven", str(error)),),
        )


def _check_inclusion(proof: InclusionProof, path: str, keys: Keys) -> Checked:
    checkpoint, entry = proven_entry(proof, path)
    unchecked = find_unchecked_signatures([checkpoint], keys)
    if entry is None:
        unchecked.append("what the entry says: the proof holds its hash alone")
    if isinstance(entry, TrialEntry) and entry.evidence:
        files = count_of(len(entry.evidence), "file")
        unchecked.append(f"{files} of evidence: the entry holds their digests")
    size = checkpoint.tree.size
    return Checked(
        path=path,
        thing=FileKind.PROOF,
        summary=f"entry {proof.seq} of {size:,} in {checkpoint.origin}: {_render_entry(entry)}",
        diagnostics=tuple(judge_signatures(checkpoint, keys, "the checkpoint")),
        unchecked=(*unchecked, _ELSE),
    )


def _render_entry(entry: AnyEntry | None) -> str:
    if entry is None:
        return "kept back"
    if not isinstance(entry, TrialEntry):
        return f"a {entry.kind}"
    row = read_row(entry)
    reward = row.reward
    return (
        f"trial {row.trial_id} of {row.experiment_id}, "
        f"{'not scored' if reward is None else f'reward {reward}'}, record {record_digest(entry)}"
    )


def _check_consistency(proof: ConsistencyProof, path: str, keys: Keys) -> Checked:
    older, newer = proven_growth(proof, path)
    return Checked(
        path=path,
        thing=FileKind.PROOF,
        summary=(
            f"{newer.origin} grew from {older.tree.size:,} to "
            f"{count_of(newer.tree.size, 'entry', 'entries')}, and the first "
            f"{older.tree.size:,} stayed as they were"
        ),
        diagnostics=(
            *judge_signatures(older, keys, "the older checkpoint"),
            *judge_signatures(newer, keys, "the newer checkpoint"),
        ),
        unchecked=(
            *find_unchecked_signatures([older, newer], keys),
            "what the entries say: the proof holds hashes alone",
        ),
    )


def check_claim_file(path: str, given: Given = ()) -> Checked:
    """A claim: signature, every entry in the ledger, and the score out of the entries.

    Raises:
        InputError: it cannot be read, or is none.
    """
    keys = [find_verifier_key(key) for key in given]
    claim = parse_claim(load_document(path), path)
    tally = Tally()
    unchecked: list[str] = []
    try:
        proven = prove_claim(claim, path)
        tally.add(judge_signatures(proven.checkpoint, keys, "the checkpoint", proven.keys))
        unchecked += find_unchecked_signatures([proven.checkpoint], keys, proven.keys)
        tally.add(Diagnostic("differs", found) for found in find_differences(claim, proven))
    except DamageError as error:
        tally.add([Diagnostic("not-proven", str(error))])
    problems = {found.code for found in tally.kept if found.is_problem}
    if "not-proven" not in problems:
        unchecked += _find_unattested(claim)
    if not problems:
        tally.add(Diagnostic("rests-on", text, is_problem=False) for text in render_basis(claim))
        tally.add(Diagnostic("attested", text, is_problem=False) for text in _say_attested(claim))
    return Checked(
        path=path,
        thing=FileKind.CLAIM,
        summary=_judge_claim(claim, problems),
        diagnostics=tally.kept,
        more=tally.more,
        unchecked=(*unchecked, *_find_unchecked(claim)),
    )


def _judge_claim(claim: Claim, problems: set[str]) -> str:
    if "not-proven" in problems:
        return "it proves nothing"
    if "differs" in problems:
        return "it does not follow from its entries"
    signed = ", but a key that was given did not sign it" if problems else ""
    return f"{render_score(claim)}{signed}"


def render_score(claim: Claim) -> str:
    """The score and what it is over, in a few words."""
    dataset = f" ({claim.dataset})" if claim.dataset else ""
    trials = count_of(claim.counts.counted, "trial")
    groups = len(claim.certificate.groups)
    if groups > 1:
        # Agents, models or datasets differ: one number over all of them says nothing.
        return f"{claim.experiment}{dataset}: {trials} in {groups} groups, each with its own score"
    score = _render_number(claim.certificate.outcome.score)
    return f"{claim.experiment}{dataset} scored {score} over {trials}"


def render_basis(claim: Claim) -> Iterator[str]:
    """What the score rests on, in lines."""
    for group in claim.certificate.groups:
        values = [
            f"{metric.metric if label == metric.metric else f'{metric.metric} of {label}'} "
            f"{_render_number(value)}"
            for metric in group.metrics
            for label, value in (metric.result or {}).items()
        ]
        values += [f"pass@{k} {_render_number(value)}" for k, value in group.pass_at_k.items()]
        yield f"{group.key}: {len(group.trials):,} trials: {', '.join(values) or 'no metric'}"
    yield render_counts(claim.counts)
    if claim.counts.rescored:
        trials = count_of(claim.counts.rescored, "trial")
        yield f"{trials} rescored later; the first score counts here"
    bases = [trial.basis for group in claim.certificate.groups for trial in group.trials]
    if unmarked := sum(basis in (FROM_BREAKDOWN, FROM_REWARD) for basis in bases):
        trials = count_of(unmarked, "trial")
        yield f"{trials} sealed without a certificate: rewards as the record has them"
    if unnamed := render_claimed(claim):
        yield unnamed


def render_claimed(claim: Claim) -> str | None:
    """What the claim discloses of entries that were withheld without naming a trial."""
    if not claim.counts.withheld_unnamed:
        return None
    entries = count_of(claim.counts.withheld_unnamed, "entry", "entries")
    return f"{entries} withheld without naming a trial: any of them may be of this experiment"


def _render_number(written: object) -> str:
    """A number of a certificate for people; what a script gave stays as it is."""
    with contextlib.suppress(ValueError, OverflowError):
        return repr(float.fromhex(written)) if isinstance(written, str) else str(written)
    return shown(written)


def render_counts(counts: Counts) -> str:
    """The denominators on one line."""
    return (
        f"planned {counts.planned:,}: counted {counts.counted:,} (scored {counts.scored:,}, "
        f"missing and counted as 0 {counts.zero_by_missing:,}; errored {counts.errored:,}, "
        f"diagnostic {counts.counted_diagnostic:,}), withheld {counts.withheld:,}, "
        f"diagnostic left out {counts.diagnostic:,}, not run {counts.not_run:,}; "
        f"not counted: superseded {counts.superseded:,}, earlier attempts {counts.attempts:,}, "
        f"of other datasets {counts.other_datasets:,}"
    )


def _find_unchecked(claim: Claim) -> Iterator[str]:
    yield from find_unchecked(claim.certificate)
    yield "evidence: the entries hold its digests"
    yield "how many trials were planned: that is the claimant's word"
    if claim.dataset is not None:
        yield "how many trials other datasets have: that is the claimant's word too"


def _say_attested(claim: Claim) -> Iterator[str]:
    """What a signed statement shows about completeness."""
    entry = carried_by(claim).find_attestation()
    if entry is None:
        return
    unnamed = count_of(entry.unnamed, "withholding")
    yield (
        f"entry {entry.seq} attests that {count_of(entry.entries, 'entry', 'entries')} among the "
        f"first {entry.size:,} of the ledger belong to {claim.experiment}: all of them are here; "
        f"{unnamed} there without a subject"
    )


def _find_unattested(claim: Claim) -> Iterator[str]:
    carried = carried_by(claim)
    entry = carried.find_attestation()
    if entry is None:
        yield (
            "that the ledger holds no other trial of the experiment: no attestation, so "
            "completeness is the claimant's word; `proctor ledger attest` makes one"
        )
        return
    if kept_back := find_kept_back(carried):
        said = count_of(len(kept_back), "entry", "entries")
        yield f"that {said} here by hash alone are trials of other datasets: the claimant's word"
    yield (
        f"trials sealed after the first {entry.size:,} entries: the attestation does not cover them"
    )
    yield "trials that were never sealed, or sealed into another ledger: nothing here shows them"
