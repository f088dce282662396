"""Making a claim from a ledger: which entries it takes, their proof, and the score they make."""

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
from proctor.ledger.claims.proof import find_leaves
from proctor.ledger.claims.trials import Scope, sort_out
from proctor.ledger.entry import AnyEntry, Withheld, decode_line
from proctor.ledger.note import Checkpoint
from proctor.ledger.query import render_missing
from proctor.ledger.reader import LedgerReader
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.withheld import find_unnamed
from proctor.ledger.withhold import find_withholdings
from proctor.reward.metric import DEFAULT_METRIC

_REMARKS = ("supersede", "withhold", "rescore")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """What a claim is to say."""

    scope: Scope
    metrics: tuple[str, ...] = (DEFAULT_METRIC,)
    planned: int | None = None
    """Trials that were to be run; None for those that are in the log and not superseded."""


def make_claim(ledger: LedgerReader, options: ClaimOptions, checkpoint: Checkpoint) -> Claim:
    """A claim under a checkpoint of the ledger; call `refresh` before.

    Raises:
        LedgerError: there is nothing to claim, or the denominators do not add up.
        DamageError: the ledger is not what the checkpoint says.
    """
    scope = options.scope
    leaves = find_leaves(ledger, checkpoint, "the checkpoint")
    chosen = _find_entries(ledger, scope, len(leaves))
    packed, entries, missing = _pack(ledger, leaves, chosen.places)
    standing = sort_out(entries, missing, scope)
    there = len(standing.counted) + len(standing.withheld) + len(standing.diagnostic)
    planned = there if options.planned is None else options.planned
    if planned < there:
        raise LedgerError(
            f"{planned:,} trials were planned; {there:,} of {scope.experiment} are in the ledger "
            "and not superseded: the denominators do not add up"
        )
    certificate = certify(standing.counted, scope.experiment, options.metrics, planned)
    claim = Claim(
        format=FORMAT,
        experiment=scope.experiment,
        dataset=scope.dataset,
        sealed_only=scope.sealed_only,
        checkpoint=checkpoint.render().decode(),
        counts=count_trials(standing, certificate, planned, len(chosen.others)),
        certificate=certificate,
        entries=packed,
        nodes=[
            node.hex() for node in prove_entries(leaves, sorted({*chosen.places, *chosen.hashed}))
        ],
        attestation=chosen.attestation,
        hashed=[Packed(seq=seq, leaf=leaves[seq].hex()) for seq in chosen.hashed],
    )
    _check(claim)
    return claim


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The places of what a claim takes."""

    places: list[int]
    others: frozenset[int]
    """Trials of other datasets."""
    attestation: int | None = None
    hashed: tuple[int, ...] = ()
    """What is taken by its leaf alone."""


def _find_entries(ledger: LedgerReader, scope: Scope, size: int) -> _Chosen:
    rows = list(ledger.index.trials(TrialFilter(experiment=scope.experiment), size=size))
    # Of one that was withheld no dataset is known: it is told of, whatever was asked for.
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
    """The latest attestation of the experiment, and everything that it counts."""
    entry = find_attestation(ledger, scope.experiment, size)
    if entry is None:
        return chosen
    survey = survey_log(ledger.log, size)
    counted = survey.find_counted(entry)
    if counted is None:
        raise DamageError(
            f"{ledger.where}: the log contradicts the attestation of entry {entry.seq}; "
            "`proctor ledger verify` says how"
        )
    hidden = counted.keys() & {*survey.hidden(entry.size)}
    hashed = hidden | (counted.keys() & chosen.others)
    withholdings = [each.seq for each in find_withholdings(ledger) if each.entry in hidden]
    places = {*chosen.places, entry.seq, *withholdings, *(counted.keys() - hashed)}
    return _Chosen(
        sorted(seq for seq in places if seq < size), chosen.others, entry.seq, tuple(sorted(hashed))
    )


def _find_unnamed(ledger: LedgerReader, size: int) -> Iterator[int]:
    """What was withheld without naming a trial, and the entries that say so under the checkpoint.

    Any experiment may be meant.
    """
    for found in find_unnamed(ledger, size):
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
    ledger: LedgerReader, leaves: Sequence[bytes], places: Sequence[int]
) -> tuple[list[Packed], list[AnyEntry], dict[int, bytes]]:
    packed: list[Packed] = []
    entries: list[AnyEntry] = []
    missing: dict[int, bytes] = {}
    for seq in places:
        line = ledger.line(seq)
        entry = decode_line(line, f"{ledger.where}: entry {seq}")
        if isinstance(entry, Withheld):
            missing[seq] = leaves[seq]
            packed.append(Packed(seq=seq, leaf=leaves[seq].hex()))
        else:
            entries.append(entry)
            packed.append(Packed(seq=seq, line=line.decode()))
    return packed, entries, missing


def _check(claim: Claim) -> None:
    """See that a stranger will find it in order."""
    proven = prove_claim(claim, "the claim")
    for difference in find_differences(claim, proven):
        raise DamageError(f"{claim.experiment}: {difference}")
