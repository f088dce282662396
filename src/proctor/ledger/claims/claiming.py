"""Makes a claim from a ledger: its entries, their proof, and their score."""

from collections.abc import Sequence
from dataclasses import dataclass

from proctor.errors import DamageError, LedgerError
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
    places, n_others = _find_entries(ledger, scope, tree.size)
    packed, entries, missing = _pack(ledger, tree, places)
    trials = classify_trials(entries, missing, scope)
    there = len(trials.counted) + len(trials.withheld) + len(trials.diagnostic)
    planned = there if options.planned is None else options.planned
    if planned < there:
        raise LedgerError(
            f"{planned:,} trials were planned; {there:,} of {scope.experiment} are in the ledger "
            "and not superseded: the denominators do not add up"
        )
    certificate = certify(trials.counted, scope.experiment, options.metrics, planned)
    claim = Claim(
        format=FORMAT,
        experiment=scope.experiment,
        dataset=scope.dataset,
        sealed_only=scope.sealed_only,
        checkpoint=checkpoint.render().decode(),
        counts=count_trials(trials, certificate, planned, n_others),
        certificate=certificate,
        entries=packed,
        nodes=[node.hex() for node in prove_entries(tree.subtree, tree.size, places)],
    )
    # The claim is checked as its reader will.
    proven = prove_claim(claim, "the claim")
    for difference in find_differences(claim, proven):
        raise DamageError(f"{claim.experiment}: {difference}")
    return claim


def _find_entries(ledger: LedgerReader, scope: Scope, size: int) -> tuple[list[int], int]:
    """Positions of the entries of a claim, and the number of trials of other datasets."""
    rows = list(ledger.index.trials(TrialFilter(experiment=scope.experiment), size=size))
    # The dataset of a withheld trial is unknown: it is always disclosed.
    ours = [
        row.seq
        for row in rows
        if scope.dataset in (None, row.dataset_id) or row.status == "withheld"
    ]
    if not ours:
        if not rows:
            raise LedgerError(render_missing(ledger, scope.experiment))
        raise LedgerError(
            f"{ledger.where}: no trial of the experiment {scope.experiment!r} is of the dataset "
            f"{scope.dataset!r}; `proctor ledger list` shows what there is"
        )
    remarks = {
        seq
        for kind in _REMARKS
        for seq in ledger.index.remarks(experiment=scope.experiment, kind=kind, size=size)
    }
    keys = ledger.index.places("key", size=size)
    return sorted({*ours, *remarks, *keys}), len(rows) - len(ours)


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
