"""Trials in a ledger; their files are unpacked to a temporary copy while somebody reads them."""

from collections.abc import Iterator

from proctor.errors import LedgerError
from proctor.ledger.artifacts import Artifacts
from proctor.ledger.entry import EvidenceFile, TrialEntry
from proctor.ledger.head import read_head_of
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import TrialFilter, TrialRow, find_one, find_trials
from proctor.record.read import parse_record
from proctor.traced.trial import Opened, TracedTrial
from proctor.traced.unpacked import unpacked


def find_sealed(ledger: Ledger, wanted: TrialFilter) -> Iterator[TracedTrial]:
    """The sealed trials that a filter lets through, in the order they were sealed."""
    for row in find_trials(ledger, wanted):
        yield trace_row(ledger, row)


def find_named(ledger: Ledger, name: str) -> Iterator[TracedTrial]:
    """The trial of that name, or all trials of the experiment of that name.

    Raises:
        LedgerError: there is neither.
    """
    rows = find_trials(ledger, TrialFilter(experiment=name)) if name.isprintable() else []
    if not rows:
        found = find_one(ledger, name)
        if isinstance(found, int):
            raise LedgerError(f"{ledger.directory}: entry {found} is not a trial")
        rows = [found]
    for row in rows:
        yield trace_row(ledger, row)


def trace_row(ledger: Ledger, row: TrialRow) -> TracedTrial:
    """The sealed trial of a row; one that was withheld has no record and no files."""
    name = f"{row.experiment_id}/{row.trial_id}"
    entry = ledger.entry(row.seq)
    if not isinstance(entry, TrialEntry):
        return TracedTrial(
            name=name,
            files=(),
            open_file=_Evidence(ledger.artifacts, {}).open,
            problem=f"{name}: withheld; `proctor show {row.seq}` says why",
            seq=row.seq,
        )
    return trace_entry(ledger.artifacts, entry)


def trace_entry(artifacts: Artifacts, entry: TrialEntry) -> TracedTrial:
    """The sealed trial of an entry; evidence that is not there is none of its files."""
    head = read_head_of(entry)
    name = f"{head.experiment_id}/{head.trial_id}"
    kept = {file.path: file for file in entry.evidence if artifacts.holds(file.sha256)}
    return TracedTrial(
        name=name,
        files=tuple(kept),
        open_file=_Evidence(artifacts, kept).open,
        record=parse_record(bytes(entry.record), name, salvage=True).record,
        reason_code=entry.reason_code,
        findings=entry.findings,
        seq=entry.seq,
    )


class _Evidence:
    """The evidence of one sealed trial."""

    def __init__(self, artifacts: Artifacts, kept: dict[str, EvidenceFile]) -> None:
        self._artifacts = artifacts
        self._kept = kept

    def open(self, name: str) -> Opened:
        """A copy that is gone afterwards; every byte of it was seen to be what was sealed."""
        return unpacked(self._artifacts, self._kept[name])
