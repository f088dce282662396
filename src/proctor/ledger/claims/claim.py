"""A claim: a score, every entry it rests on, and the proof that they are in a ledger; one file.

    {"format": "proctor-claim-2", "experiment": …, "dataset": …, "sealed_only": …,
     "checkpoint": note, "counts": {…}, "certificate": {…},
     "entries": [{"seq": n, "line": …} or {"seq": n, "leaf": …}, …], "nodes": [hash, …],
     "attestation": n or null, "hashed": [{"seq": n, "leaf": …}, …]}

Anyone with the file and the ledger's public key can check it without the ledger. That the ledger
holds nothing else about the experiment is shown as far as a signed attestation in it says so.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from proctor.audit.certificate import (
    Certificate,
    CertifiedJob,
    CertifiedTrial,
    check_certificate,
)
from proctor.errors import CertificateError, ProofError, ProofFileError
from proctor.ledger.claims.attested import Carried, find_omissions
from proctor.ledger.claims.document import LARGEST, parse_document, parse_hash
from proctor.ledger.claims.multiproof import find_root_before, hash_parts
from proctor.ledger.claims.operands import ORDER, group_operands, profiles_of
from proctor.ledger.claims.proof import read_entry
from proctor.ledger.claims.trials import ClaimedTrials, Scope, sort_out
from proctor.ledger.entry import AnyEntry, KeyEntry, Seq
from proctor.ledger.handover import Handover, follow_handovers
from proctor.ledger.note import Checkpoint, VerifierKey, parse_checkpoint
from proctor.ledger.tree import leaf_hash

FORMAT = "proctor-claim-2"
FIRST_FORMAT = "proctor-claim-1"
"""Of claims without attestations, and without a word of lines withheld without naming a trial; they
are read for ever."""
_LONGEST_SHOWN = 300


class Packed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry that the claim rests on."""

    seq: Seq
    """Its place in the log, from 0."""
    line: str | None = None
    """The entry as it is stored, without its newline."""
    leaf: str | None = None
    """Its leaf hash as hex, where the line was withheld; one of the two is null."""


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the score rests on, in trials.

    entries = counted + superseded + attempts + withheld + diagnostic
    planned = counted + withheld + diagnostic + not_run
    counted = scored + zero_by_missing
    """

    planned: int
    """That were to be run: what the claimant says, or what is there where nothing was said."""
    entries: int
    """Of the experiment, in the log."""
    counted: int
    """In the number."""
    scored: int
    """Counted, with a reward."""
    zero_by_missing: int
    """Counted, without a reward: counts as 0."""
    errored: int
    """Counted, with an exception; some of them have a reward all the same."""
    superseded: int
    """Not counted, because another trial supersedes it."""
    attempts: int
    """Not counted, because the trial was begun again and the later attempt is the one."""
    withheld: int
    """Not counted, because the line was taken out of the log."""
    diagnostic: int
    """Not counted, because the record is partial and those were left out."""
    counted_diagnostic: int
    """Counted although the record is partial."""
    rescored: int
    """Counted, and marked again later; the first marks are the ones that count."""
    not_run: int
    """Planned, and not in the log."""
    other_datasets: int
    """Trials of the experiment that belong to another dataset than the one claimed: not here."""
    withheld_unnamed: int = 0
    """Lines and evidence of the ledger that were withheld without naming a trial: of any one."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A score that anyone can check."""

    format: str
    """proctor-claim-2; proctor-claim-1 has no `attestation` and no `hashed`."""
    experiment: str
    dataset: str | None
    """The claim is about this dataset alone; null for the whole experiment."""
    sealed_only: bool
    """Whether trials with partial records were left out."""
    checkpoint: str
    """The signed note, as it is."""
    counts: Counts
    certificate: Certificate
    """A score certificate, as `proctor score --certificate` writes it."""
    entries: list[Packed]
    """Keys, trials, and what was said of them, in the order of the log."""
    nodes: list[str]
    """The hashes, as hex, that lead from all the entries together to the root."""
    attestation: Seq | None = None
    """Place of the entry that attests all entries of the experiment; null where none does."""
    hashed: list[Packed] = []
    """Entries that the attestation counts and that are here by their leaves alone."""

    @property
    def scope(self) -> Scope:
        """Which trials are claimed."""
        return Scope(self.experiment, self.dataset, self.sealed_only)


def carried_by(claim: Claim) -> Carried:
    """What a claim carries of the log; hashes that are none are told by `prove_claim`."""
    return Carried(
        experiment=claim.experiment,
        dataset=claim.dataset,
        other_datasets=claim.counts.other_datasets,
        attestation=claim.attestation,
        lines={each.seq: each.line.encode() for each in claim.entries if each.line is not None},
        withheld={each.seq: bytes.fromhex(each.leaf) for each in claim.entries if each.leaf},
        hashed={each.seq: bytes.fromhex(each.leaf) for each in claim.hashed if each.leaf},
    )


@dataclass(frozen=True, slots=True)
class Proven:
    """What a claim proves to be in the ledger."""

    checkpoint: Checkpoint
    entries: list[AnyEntry]
    keys: list[VerifierKey]
    """The ledger's keys, the first one first, as far as the claim has their entries."""
    standing: ClaimedTrials


def parse_claim(data: bytes, where: str) -> Claim:
    """The claim in a document's bytes; nothing of what it says is checked.

    Raises:
        ProofFileError: it is none, or of another format.
    """
    if len(data) > LARGEST:
        raise ProofFileError(f"{where}: more than {LARGEST >> 20} MiB")
    claim = parse_document(data, Claim, where)
    if claim.format not in (FORMAT, FIRST_FORMAT):
        raise ProofFileError(f"{where}: format is {claim.format[:60]!r}; expected {FORMAT!r}")
    if claim.format == FIRST_FORMAT and (claim.attestation is not None or claim.hashed):
        raise ProofFileError(f"{where}: {FIRST_FORMAT} has no attestation; expected {FORMAT!r}")
    _check_places(claim, where)
    return claim


def _check_places(claim: Claim, where: str) -> None:
    for part in (claim.entries, claim.hashed):
        places = [each.seq for each in part]
        if places != sorted(set(places)):
            raise ProofFileError(f"{where}: expected entries in the order of the log, each once")
    leaves = {packed.seq: packed.leaf for packed in claim.hashed}
    for packed in claim.hashed:
        if packed.line is not None or packed.leaf is None:
            raise ProofFileError(f"{where}: hashed: entry {packed.seq}: expected `leaf` alone")
    for packed in claim.entries:
        if (packed.line is None) == (packed.leaf is None):
            raise ProofFileError(f"{where}: entry {packed.seq}: expected either `line` or `leaf`")
        # A line that was withheld without naming a trial is disclosed as such, and attested too.
        if packed.leaf != leaves.get(packed.seq, packed.leaf) or (
            packed.line is not None and packed.seq in leaves
        ):
            raise ProofFileError(f"{where}: entry {packed.seq} is there twice, in two forms")


def prove_claim(claim: Claim, where: str) -> Proven:
    """What the claim's proof proves.

    Raises:
        NoteError, ProofFileError: a part of it cannot be read.
        DamageError: an entry is not in the ledger, or is not what the claim takes it for.
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
    hashed = {
        packed.seq: parse_hash(packed.leaf or "", f"{where}: entry {packed.seq}")
        for packed in claim.hashed
    }
    leaves = {seq: leaf_hash(line) for seq, line in lines.items()} | missing | hashed
    size = checkpoint.tree.size
    parts = hash_parts(leaves, size, nodes)
    if parts[0, size] != checkpoint.tree.root:
        raise ProofError(
            f"the {len(leaves):,} entries are not in the ledger that the checkpoint speaks of"
        )
    entries = [read_entry(line, seq) for seq, line in lines.items()]
    handovers = [
        Handover(entry, find_root_before(parts, size, entry.seq))
        for entry in entries
        if isinstance(entry, KeyEntry)
    ]
    keys = follow_handovers(handovers, checkpoint.origin)
    return Proven(checkpoint, entries, keys, sort_out(entries, missing, claim.scope))


def find_differences(claim: Claim, proven: Proven) -> Iterator[str]:
    """Where the claim says something else than its entries do; nothing where it follows."""
    expected = group_operands(proven.standing.counted)
    yield from _compare_operands(claim.certificate, expected)
    jobs = [CertifiedJob(claim.experiment, ORDER, None)]
    if claim.certificate.jobs != jobs:
        yield "the certificate is of other jobs than the experiment that is claimed"
    profiles = profiles_of(proven.standing.counted)
    if profiles != [claim.certificate.profile]:
        yield f"scored by {claim.certificate.profile}; the entries by {', '.join(profiles)}"
    try:
        if difference := check_certificate(claim.certificate):
            yield str(difference)
    except CertificateError as error:
        yield str(error)
    yield from _compare_counts(claim, proven)
    yield from find_omissions(carried_by(claim))


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
            if not _is_same(found, right):
                yield (
                    f"{key}: operand {_shown(found)} is not what the entry of trial "
                    f"{right.trial} says: {_shown(right)}"
                )
                break


def _is_same(found: CertifiedTrial, wanted: CertifiedTrial) -> bool:
    # The order of the rewards counts: the first is the one that a metric takes.
    return found == wanted and list(found.rewards or ()) == list(wanted.rewards or ())


def _shown(value: object) -> str:
    text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _compare_counts(claim: Claim, proven: Proven) -> Iterator[str]:
    counts = claim.counts
    expected = count_trials(
        proven.standing, claim.certificate, counts.planned, counts.other_datasets
    )
    for name, value in msgspec.structs.asdict(expected).items():
        if (stated := getattr(counts, name)) != value:
            yield f"counts.{name} is {stated}; the entries give {value}"
    if counts.planned != claim.certificate.planned:
        yield f"counts.planned is {counts.planned}; the certificate has {claim.certificate.planned}"
    if min(msgspec.structs.astuple(expected)) < 0:
        yield (
            f"{counts.planned} trials were planned; "
            f"{counts.planned - expected.not_run} are there: the counts do not add up"
        )


def count_trials(
    standing: ClaimedTrials, certificate: Certificate, planned: int, other_datasets: int
) -> Counts:
    """The denominators of a claim. A number below 0 says that they do not add up."""
    trials = [trial for group in certificate.groups for trial in group.trials]
    counted, withheld = len(standing.counted), len(standing.withheld)
    diagnostic, superseded = len(standing.diagnostic), len(standing.superseded)
    attempts = len(standing.attempts)
    scored = sum(bool(trial.rewards) for trial in trials)
    return Counts(
        planned=planned,
        entries=counted + superseded + attempts + withheld + diagnostic,
        counted=counted,
        scored=scored,
        zero_by_missing=counted - scored,
        errored=sum(trial.exception is not None for trial in trials),
        superseded=superseded,
        attempts=attempts,
        withheld=withheld,
        diagnostic=diagnostic,
        counted_diagnostic=standing.n_counted_diagnostic,
        rescored=standing.n_rescored,
        not_run=planned - counted - withheld - diagnostic,
        other_datasets=other_datasets,
        withheld_unnamed=len(standing.unnamed) + len(standing.unnamed_evidence),
    )
