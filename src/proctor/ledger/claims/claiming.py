"""Makes a claim from a ledger: its entries, their proof, and their score."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proctor.errors import DamageError, LedgerError
from proctor.ledger.attestation import find_attestation, survey_log
from proctor.ledger.claims.claim import (
    FORMAT,
    Claim,
    Packed,
    count_trials,
    find_differences,
    prove_claim,
)
from proctor.ledger.claims.multiproof import prove_entries
from proctor.ledger.claims.operands import certify
from proctor.ledger.claims.proof import signed_tree
from proctor.ledger.claims.trials import Scope, classify_trials
from proctor.ledger.entry import AnyEntry, Withheld, decode_line
from proctor.ledger.note import Checkpoint
from proctor.ledger.query import render_missing
from proctor.ledger.reader import LedgerReader
from proctor.ledger.tiles import TiledTree
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withheld import list_unnamed
from proctor.ledger.withhold import list_withholdings
from proctor.reward.metric import DEFAULT_METRIC

_REMARKS = ("supersede", "withhold", "rescore")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """What to claim."""

    scope: Scope
    metrics: tuple[str, ...] = (DEFAULT_METRIC,)
    planned: int | None = None
    """Trials to be run; None: those that are in the log and not superseded."""


def make_claim(ledger: LedgerReader, options: ClaimOptions, checkpoint: Checkpoint) -> Claim:
    """Make a claim under a checkpoint of the ledger; call `refresh` first.

    Raises:
        LedgerError: there is nothing to claim, or the counts do not add up.
        DamageError: the ledger does not match the checkpoint.
    """
    scope = options.scope
    tree = signed_tree(ledger, checkpoint, "the checkpoint")
    chosen = _find_entries(ledger, scope, tree.size)
    packed, entries, missing = _pack(ledger, tree, chosen.places)
    trials = classify_trials(entries, missing, scope)
    there = len(trials.counted) + len(trials.withheld) + len(trials.diagnostic)
    planned = there if options.planned is None else options.planned
    if planned < there:
        raise LedgerError(
            f"{planned:,} trials were planned; {there:,} of {scope.experiment} are in the ledger "
            "and not superseded: the denominators do not add up"
        )
    certificate = certify(trials.counted, scope.experiment, options.metrics, planned)
    proven = sorted({*chosen.places, *chosen.hashed})
    claim = Claim(
        format=FORMAT,
        experiment=scope.experiment,
        dataset=scope.dataset,
        sealed_only=scope.sealed_only,
        checkpoint=checkpoint.render().decode(),
        counts=count_trials(trials, certificate, planned, len(chosen.others)),
        certificate=certificate,
        entries=packed,
        nodes=[node.hex() for node in prove_entries(tree.subtree, tree.size, proven)],
        attestation=chosen.attestation,
        hashed=[Packed(seq=seq, leaf=tree.leaf(seq).hex()) for seq in chosen.hashed],
    )
    _check(claim)
    return claim


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The positions of the entries in a claim."""

    places: list[int]
    others: frozenset[int]
    """Trials of other datasets."""
    attestation: int | None = None
    hashed: tuple[int, ...] = ()
    """Entries included as hashes only."""


def _find_entries(ledger: LedgerReader, scope: Scope, size: int) -> _Chosen:
    rows = list(ledger.index.trials(TrialFilter(experiment=scope.experiment), size=size))
    # The dataset of a withheld trial is unknown: it is always disclosed.
    ours = [
        row.seq
        for row in rows
        if scope.dataset in (None, row.dataset_id) or row.status == "withheld"
    ]
    if not ours:
        raise LedgerError(_render_missing(ledger, scope, is_there=bool(rows)))
    remarks = {
        seq
        for kind in _REMARKS
        for seq in ledger.index.remarks(experiment=scope.experiment, kind=kind, size=size)
    }
    keys = ledger.index.places("key", size=size)
    others = frozenset({row.seq for row in rows} - {*ours})
    unnamed = _find_unnamed(ledger, size)
    chosen = _Chosen(sorted({*ours, *remarks, *keys, *unnamed}), others)
    return _with_attestation(ledger, scope, size, chosen)


def _with_attestation(ledger: LedgerReader, scope: Scope, size: int, chosen: _Chosen) -> _Chosen:
    """Add the latest attestation of the experiment, and everything that it counts."""
    entry = find_attestation(ledger, scope.experiment, size)
    if entry is None:
        return chosen
    survey = survey_log(ledger.log, size)
    counted = survey.find_counted(entry)
    if counted is None:
        raise DamageError(
            f"{ledger.where}: the log contradicts the attestation of entry {entry.seq}; "
            "run `proctor ledger verify`"
        )
    hidden = counted.keys() & {*survey.hidden(entry.size)}
    hashed = hidden | (counted.keys() & chosen.others)
    withholdings = [each.seq for each in list_withholdings(ledger) if each.entry in hidden]
    places = {*chosen.places, entry.seq, *withholdings, *(counted.keys() - hashed)}
    return _Chosen(
        sorted(seq for seq in places if seq < size), chosen.others, entry.seq, tuple(sorted(hashed))
    )


def _find_unnamed(ledger: LedgerReader, size: int) -> Iterator[int]:
    """Withholdings without a named trial under the checkpoint, and the lines they withhold.

    They may concern any experiment.
    """
    for found in list_unnamed(ledger, size):
        if found.said_at is not None and found.said_at < size:
            yield found.said_at
            if found.entry is not None:
                yield found.entry


def _render_missing(ledger: LedgerReader, scope: Scope, *, is_there: bool) -> str:
    if not is_there:
        return render_missing(ledger, scope.experiment)
    return (
        f"{ledger.where}: no trial of the experiment {scope.experiment!r} is of the dataset "
        f"{scope.dataset!r}; `proctor ledger list` shows what there is"
    )


def _pack(
    ledger: LedgerReader, tree: TiledTree, places: Sequence[int]
) -> tuple[list[Packed], list[AnyEntry], dict[int, bytes]]:
    packed: list[Packed] = []
    entries: list[AnyEntry] = []
    missing: dict[int, bytes] = {}
    for seq in places:
        line = ledger.line(seq)
        entry = decode_line(line, f"{ledger.where}: entry {seq}")
        if isinstance(entry, Withheld):
            missing[seq] = tree.leaf(seq)
            packed.append(Packed(seq=seq, leaf=missing[seq].hex()))
        else:
            entries.append(entry)
            packed.append(Packed(seq=seq, line=line.decode()))
    return packed, entries, missing


def _check(claim: Claim) -> None:
    """Check the claim as its reader will."""
    proven = prove_claim(claim, "the claim")
    for difference in find_differences(claim, proven):
        raise DamageError(f"{claim.experiment}: {difference}")
