"""Sealed trials with their traces; files are unpacked to temporary copies for reading."""

from collections.abc import Iterator
from dataclasses import replace

from proctor.ledger.artifacts import ArtifactStore
from proctor.ledger.entry import TrialEntry
from proctor.ledger.query import find_trial, list_trials
from proctor.ledger.reader import LedgerReader
from proctor.ledger.row import TrialRow, read_row
from proctor.ledger.sealed_evidence import SealedEvidence
from proctor.ledger.trial_index import TrialFilter
from proctor.record.read import parse_record
from proctor.traces.traced_trial import TracedTrial


def trace_sealed(ledger: LedgerReader, wanted: TrialFilter) -> Iterator[TracedTrial]:
    """The sealed trials that match a filter, in the order they were sealed."""
    is_named = wanted.status is not None or wanted.trial is not None
    for row in list_trials(ledger, wanted):
        yield trace_row(ledger, row, "" if is_named else row.status)


def trace_named(ledger: LedgerReader, name: str) -> Iterator[TracedTrial]:
    """The trial of that name, or all trials of the experiment of that name."""
    rows = list_trials(ledger, TrialFilter(experiment=name)) if name.isprintable() else []
    if not rows:
        yield trace_row(ledger, find_trial(ledger, name))
    for row in rows:
        yield trace_row(ledger, row, row.status)


def trace_row(ledger: LedgerReader, row: TrialRow, status: str = "") -> TracedTrial:
    """The traced trial of a row; a withheld one has no record and no files."""
    name = row.name
    entry = ledger.entry(row.seq)
    if not isinstance(entry, TrialEntry):
        return TracedTrial(
            name=name,
            files=(),
            open_file=SealedEvidence(ledger.artifacts, ()).open,
            problem=f"{name}: withheld; `proctor show {row.seq}` says why",
            seq=row.seq,
            status=status,
        )
    return replace(trace_entry(ledger.artifacts, entry), status=status)


def trace_entry(artifacts: ArtifactStore, entry: TrialEntry) -> TracedTrial:
    """The traced trial of an entry; missing evidence is left out of its files."""
    row = read_row(entry)
    name = row.name
    evidence = SealedEvidence(artifacts, entry.evidence)
    return TracedTrial(
        name=name,
        files=tuple(evidence.files),
        open_file=evidence.open,
        record=parse_record(bytes(entry.record), name, salvage=True).record,
        reason_code=row.reason_code,
        findings=entry.findings,
        seq=entry.seq,
    )
