"""A claim: a score, every entry it rests on, and the proof that they are in a ledger; one file.

    {"format": "proctor-claim-2", "experiment": …, "dataset": …, "sealed_only": …,
     "checkpoint": note, "counts": {…}, "certificate": {…},
     "entries": [{"seq": n, "line": …} or {"seq": n, "leaf": …}, …], "nodes": [hash, …]}

Anyone with the file and the ledger's public key can check it without the ledger. That the ledger
holds nothing else about the experiment is the claimant's statement.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from proctor.audit.certificate import (
    Certificate,
    CertifiedJob,
    CertifiedTrial,
    check_certificate,
)
from proctor.errors import CertificateError, DamageError, LedgerError, ProofError, ProofFileError
from proctor.harbor.stats import count_errored
from proctor.ledger.claims.document import LARGEST, parse_document, parse_hash
from proctor.ledger.claims.operands import ORDER, certify, group_operands, profiles_of
from proctor.ledger.claims.proof import read_entry, signed_tree
from proctor.ledger.claims.trials import ClaimedTrials, Scope, classify_trials
from proctor.ledger.entry import AnyEntry, KeyEntry, Seq, Withheld, decode_line
from proctor.ledger.note import Checkpoint, VerifierKey, parse_checkpoint
from proctor.ledger.query import render_missing
from proctor.ledger.reader import LedgerReader
from proctor.ledger.signature import follow_handovers
from proctor.ledger.tiles import TiledTree
from proctor.ledger.tree import hash_parts, leaf_hash, prove_entries, root_before_entry
from proctor.ledger.trial_index import TrialFilter
from proctor.reward.metric import DEFAULT_METRIC
from proctor.sentence import render_limit

FORMAT = "proctor-claim-2"
_LONGEST_SHOWN = 300


class Packed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry that the claim is based on."""

    seq: Seq
    """Its position in the log, from 0."""
    line: str | None = None
    """The stored entry, without its newline."""
    leaf: str | None = None
    """Its leaf hash in hex, if the line was withheld; one of the two is null."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of trials behind the score.

    entries = counted + superseded + attempts + withheld + diagnostic
    planned = counted + withheld + diagnostic + not_run
    counted = scored + zero_by_missing
    """

    planned: int
    """To be run, according to the claimant; by default those that are in the log."""
    entries: int
    """Entries of the experiment in the log."""
    counted: int
    """Included in the score."""
    scored: int
    """Counted, with a reward."""
    zero_by_missing: int
    """Counted, without a reward: counts as 0."""
    errored: int
    """Counted, with an exception; some of them have a reward as well."""
    superseded: int
    """Not counted, because another trial supersedes it."""
    attempts: int
    """Not counted, because the trial was restarted and a later attempt counts."""
    withheld: int
    """Not counted, because the line was withheld."""
    diagnostic: int
    """Not counted, because the record is partial and `sealed_only` is set."""
    counted_diagnostic: int
    """Counted although the record is partial."""
    rescored: int
    """Counted, and rescored later; the original scores count."""
    not_run: int
    """Planned, and not in the log."""
    other_datasets: int
    """Trials of the experiment that belong to another dataset than the claimed one: not
    included."""
    withheld_unnamed: int = 0
    """Lines and evidence withheld without naming a trial, in claims of earlier versions."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A score that anyone can check."""

    format: str
    """proctor-claim-2"""
    experiment: str
    dataset: str | None
    """The claimed dataset; null for the whole experiment."""
    sealed_only: bool
    """Whether trials with partial records were left out."""
    checkpoint: str
    """The signed note."""
    counts: Counts
    certificate: Certificate
    """A score certificate, as `proctor score --certificate` writes it."""
    entries: list[Packed]
    """Keys, trials, and entries about them, in the order of the log."""
    nodes: list[str]
    """The hashes, in hex, that lead from all the entries to the root."""
    attestation: Seq | msgspec.UnsetType | None = msgspec.UNSET
    """Earlier versions wrote the position of a statement that is not checked any more."""
    hashed: Annotated[list[Any], msgspec.Meta(max_length=0)] | msgspec.UnsetType = msgspec.UNSET
    """Earlier versions included entries as hashes only; such claims are refused."""

    @property
    def scope(self) -> Scope:
        """The claimed trials."""
        return Scope(self.experiment, self.dataset, self.sealed_only)


@dataclass(frozen=True, slots=True)
class Proven:
    """What a claim proves to be in the ledger."""

    checkpoint: Checkpoint
    entries: list[AnyEntry]
    keys: list[VerifierKey]
    """The ledger's keys, oldest first, as far as the claim has their entries."""
    trials: ClaimedTrials


def parse_claim(data: bytes, where: str) -> Claim:
    """Parse a claim, without checking what it states.

    Raises:
        ProofFileError: it is not a claim, or of another format.
    """
    if len(data) > LARGEST:
        raise ProofFileError(f"{where}: more than {render_limit(LARGEST)}")
    claim = parse_document(data, Claim, where)
    if claim.format != FORMAT:
        raise ProofFileError(f"{where}: format is {claim.format[:60]!r}; expected {FORMAT!r}")
    places = [each.seq for each in claim.entries]
    if places != sorted(set(places)):
        raise ProofFileError(f"{where}: expected entries in the order of the log, each once")
    for packed in claim.entries:
        if (packed.line is None) == (packed.leaf is None):
            raise ProofFileError(f"{where}: entry {packed.seq}: expected either `line` or `leaf`")
    return claim


def prove_claim(claim: Claim, where: str) -> Proven:
    """Check the proof of a claim; returns what it proves.

    Raises:
        NoteError, ProofFileError: a part of it cannot be parsed.
        DamageError: an entry is not in the ledger, or is not valid in the claim.
    """
    checkpoint = parse_checkpoint(claim.checkpoint.encode(), f"{where}: checkpoint")
    nodes = [parse_hash(node, f"{where}: nodes") for node in claim.nodes]
    missing = {
        packed.seq: parse_hash(packed.leaf, f"{where}: entry {packed.seq}")
        for packed in claim.entries
        if packed.leaf is not None
    }
    lines = {
        packed.seq: packed.line.encode() for packed in claim.entries if packed.line is not None
    }
    leaves = {seq: leaf_hash(line) for seq, line in lines.items()} | missing
    size = checkpoint.tree.size
    parts = hash_parts(leaves, size, nodes)
    if parts[0, size] != checkpoint.tree.root:
        raise ProofError(f"the {len(leaves):,} entries are not in the ledger of the checkpoint")
    entries = [read_entry(line, seq) for seq, line in lines.items()]
    handovers = [
        (entry, root_before_entry(parts, size, entry.seq))
        for entry in entries
        if isinstance(entry, KeyEntry)
    ]
    # The keys come from the proven entries, so that a claim cannot name its own.
    keys = follow_handovers(handovers, checkpoint.origin)
    return Proven(checkpoint, entries, keys, classify_trials(entries, missing, claim.scope))


def find_differences(claim: Claim, proven: Proven) -> Iterator[str]:
    """Messages for every statement of the claim that does not follow from its entries."""
    expected = group_operands(proven.trials.counted)
    yield from _compare_operands(claim.certificate, expected)
    jobs = [CertifiedJob(claim.experiment, ORDER, None)]
    if claim.certificate.jobs != jobs:
        yield "the certificate is for other jobs than the claimed experiment"
    profiles = profiles_of(proven.trials.counted)
    if profiles != [claim.certificate.profile]:
        yield f"scored by {claim.certificate.profile}; the entries by {', '.join(profiles)}"
    try:
        if difference := check_certificate(claim.certificate):
            yield str(difference)
    except CertificateError as error:
        yield str(error)
    yield from _compare_counts(claim, proven)


def _compare_operands(
    certificate: Certificate, expected: dict[str, list[CertifiedTrial]]
) -> Iterator[str]:
    stated = {group.key: group.trials for group in certificate.groups}
    if len(stated) != len(certificate.groups) or list(stated) != list(expected):
        names, wanted = _shown(list(stated)), _shown(list(expected))
        yield f"the certificate has the groups {names}; the entries give {wanted}"
        return
    for key, trials in expected.items():
        if len(stated[key]) != len(trials):
            yield f"{key}: {len(stated[key]):,} operands; the entries give {len(trials):,}"
        for found, right in zip(stated[key], trials, strict=False):
            # The order of rewards matters: metrics use the first.
            if found != right or list(found.rewards or ()) != list(right.rewards or ()):
                yield (
                    f"{key}: operand {_shown(found)} is not what the entry of trial "
                    f"{right.trial} says: {_shown(right)}"
                )
                break


def _shown(value: object) -> str:
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _compare_counts(claim: Claim, proven: Proven) -> Iterator[str]:
    counts = claim.counts
    expected = count_trials(proven.trials, claim.certificate, counts.planned, counts.other_datasets)
    for name, value in msgspec.structs.asdict(expected).items():
        if (stated := getattr(counts, name)) != value:
            yield f"counts.{name} is {stated}; the entries give {value}"
    if counts.planned != claim.certificate.planned:
        yield f"counts.planned is {counts.planned}; the certificate has {claim.certificate.planned}"
    if min(msgspec.structs.astuple(expected)) < 0:
        yield (
            f"{counts.planned} trials were planned; "
            f"{counts.planned - expected.not_run} are in the claim: the counts do not add up"
        )


def count_trials(
    trials: ClaimedTrials, certificate: Certificate, planned: int, other_datasets: int
) -> Counts:
    """The counts of a claim. A negative number means that they do not add up."""
    operands = [trial for group in certificate.groups for trial in group.trials]
    counted, withheld = len(trials.counted), len(trials.withheld)
    diagnostic, superseded = len(trials.diagnostic), len(trials.superseded)
    attempts = len(trials.attempts)
    scored = sum(bool(trial.rewards) for trial in operands)
    return Counts(
        planned=planned,
        entries=counted + superseded + attempts + withheld + diagnostic,
        counted=counted,
        scored=scored,
        zero_by_missing=counted - scored,
        errored=count_errored(operands),
        superseded=superseded,
        attempts=attempts,
        withheld=withheld,
        diagnostic=diagnostic,
        counted_diagnostic=trials.n_counted_diagnostic,
        rescored=trials.n_rescored,
        not_run=planned - counted - withheld - diagnostic,
        other_datasets=other_datasets,
        withheld_unnamed=len(trials.unnamed) + len(trials.unnamed_evidence),
    )


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
