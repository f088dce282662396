"""`proctor check` of checkpoints, proofs and claims.

Problems fail the check; notes say who signed and what the numbers are based on; what was not
checked is listed too. A file that cannot be parsed is refused.
"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from proctor.audit.certificate import find_unchecked
from proctor.audit.checks.checked import Checked, Tally
from proctor.audit.file_kind import FileKind
from proctor.diagnostic import Diagnostic
from proctor.errors import DamageError, KeyFileError
from proctor.ledger.claims.claim import (
    Claim,
    Counts,
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
    judge_signatures,
    load_verifier_key,
)
from proctor.ledger.entry import AnyEntry, TrialEntry, record_digest
from proctor.ledger.exchange.bundle import check_bundle
from proctor.ledger.note import VerifierKey
from proctor.ledger.row import read_row
from proctor.record.reasons import outcome_of
from proctor.sentence import count_of, render_figure, shown

type Keys = Sequence[VerifierKey]
type Given = Sequence[str]
"""Public keys as given by a person: their text, or a file."""

_ELSE = "that no other entry of the ledger is about it: this needs the ledger"


def check_checkpoint_file(path: str, given: Given = ()) -> Checked:
    """Check the format of a checkpoint, and the signatures of the given keys."""
    keys = [load_verifier_key(key) for key in given]
    checkpoint = load_checkpoint(path)
    signers = ", ".join(line.name for line in checkpoint.signatures) or "nobody"
    return Checked(
        path=path,
        thing=FileKind.CHECKPOINT,
        summary=(
            f"{checkpoint.origin} with {count_of(checkpoint.tree.size, 'entry', 'entries')} and "
            f"the root {checkpoint.tree.root.hex()}, signed by {signers}"
        ),
        diagnostics=tuple(judge_signatures(checkpoint, keys, "the checkpoint")),
        unchecked=(
            *find_unchecked_signatures([checkpoint], keys),
            "that a ledger has this tree: check it with `proctor ledger verify --since`",
        ),
    )


def check_proof_file(path: str, given: Given = ()) -> Checked:
    """Check a proof against the checkpoints in it."""
    keys = [load_verifier_key(key) for key in given]
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
        unchecked.append("what the entry says: the proof has only its hash")
    if isinstance(entry, TrialEntry) and entry.evidence:
        files = count_of(len(entry.evidence), "file")
        unchecked.append(f"{files} of evidence: the entry has only their digests")
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
        return "not disclosed"
    if not isinstance(entry, TrialEntry):
        return f"a {entry.kind}"
    row = read_row(entry)
    return (
        f"trial {row.trial_id} of {row.experiment_id}, "
        f"{outcome_of(row) if row.reward is None else f'reward {row.reward}'}, "
        f"record {record_digest(entry)}"
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
            "what the entries say: the proof has only hashes",
        ),
    )


def check_claim_file(path: str, given: Given = ()) -> Checked:
    """Check a claim: its signature, that every entry is in the ledger, and its score."""
    keys = [load_verifier_key(key) for key in given]
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
        unchecked.append(
            "that the ledger has no other trial of the experiment: this is the claimant's statement"
        )
    if not problems:
        tally.add(Diagnostic("rests-on", text, is_problem=False) for text in render_basis(claim))
    if "not-proven" in problems:
        summary = "it proves nothing"
    elif "differs" in problems:
        summary = "it does not follow from its entries"
    else:
        summary = f"{render_score(claim)}{', but a given key did not sign it' if problems else ''}"
    unchecked += find_unchecked(claim.certificate)
    unchecked.append("evidence: the entries have only its digests")
    unchecked.append("how many trials were planned: this is the claimant's statement")
    if claim.dataset is not None:
        unchecked.append("how many trials other datasets have: this is the claimant's statement")
    return Checked(
        path=path,
        thing=FileKind.CLAIM,
        summary=summary,
        diagnostics=tally.kept,
        more=tally.more,
        unchecked=tuple(unchecked),
    )


def render_score(claim: Claim) -> str:
    """The score and what it covers, in a few words."""
    dataset = f" ({claim.dataset})" if claim.dataset else ""
    trials = count_of(claim.counts.counted, "trial")
    groups = len(claim.certificate.groups)
    if groups > 1:
        # One number over different agents, models or datasets would be meaningless.
        return f"{claim.experiment}{dataset}: {trials} in {groups} groups, each with its own score"
    score = _render_number(claim.certificate.outcome.score)
    return f"{claim.experiment}{dataset} scored {score} over {trials}"


def render_basis(claim: Claim) -> Iterator[str]:
    """What the score is based on, in lines."""
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
        yield f"{trials} rescored later; the original score counts here"
    bases = [trial.basis for group in claim.certificate.groups for trial in group.trials]
    if unmarked := sum(basis in (FROM_BREAKDOWN, FROM_REWARD) for basis in bases):
        trials = count_of(unmarked, "trial")
        yield f"{trials} sealed without a certificate: their rewards are those of the record"
    if unnamed := render_claimed(claim):
        yield unnamed


def render_claimed(claim: Claim) -> str | None:
    """Disclosure of entries that were withheld without naming a trial."""
    if not claim.counts.withheld_unnamed:
        return None
    entries = count_of(claim.counts.withheld_unnamed, "entry", "entries")
    return f"{entries} withheld without naming a trial: any of them may be of this experiment"


def _render_number(written: object) -> str:
    """A number of a certificate for people; results of custom scripts are shown as they are."""
    with contextlib.suppress(ValueError, OverflowError):
        return render_figure(float.fromhex(written)) if isinstance(written, str) else str(written)
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
