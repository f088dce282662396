"""Imports the trials of a bundle into another ledger.

Each keeps its record and evidence byte for byte, and states its source. Trials that are sealed here
already with the same bytes stay as they are. Evidence that the bundle does not have is recorded as
withheld. Reviews, rescores and supersessions are imported with their trials; a trial whose
replacement is left out of the bundle is refused, because nothing here would show the supersession.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import batched
from pathlib import Path

import msgspec

from proctor.errors import AlteredArtifactError, LedgerError
from proctor.ledger.entry import (
    AnyEntry,
    RescoreEntry,
    ReviewEntry,
    Source,
    Subject,
    SupersedeEntry,
    TrialEntry,
    Withheld,
    WithholdEntry,
    encode_entry,
    record_digest,
)
from proctor.ledger.exchange.bundle import Unbundled, check_bundle, read_artifacts, read_entries
from proctor.ledger.note import VerifierKey
from proctor.ledger.reader import LedgerWriter
from proctor.ledger.review import list_remarks
from proctor.ledger.row import read_row
from proctor.ledger.sealing import NewEntry, append_trials, check_record

_BATCH = 200
AUTHOR = "proctor import"


@dataclass(slots=True)
class ImportedBundle:
    """The result of an import."""

    bundle: Unbundled
    new: int = 0
    """Trials that were sealed now."""
    known: int = 0
    """Trials that were sealed here already with the same bytes."""
    remarks: int = 0
    """Imported reviews, rescores and supersessions."""
    without: int = 0
    """Evidence files that the bundle does not have."""


def import_bundle(
    ledger: LedgerWriter, path: Path, key: VerifierKey | None = None
) -> ImportedBundle:
    """Check a bundle completely, then seal its trials."""
    taken = ImportedBundle(check_bundle(path, key))
    included: set[str] = set()
    for entry in read_entries(path):
        if isinstance(entry, TrialEntry):
            # All records before the first is sealed: an import is complete or refused.
            check_record(bytes(entry.record), f"{path}: entry {entry.seq}")
            included.add(record_digest(entry))
    _check_superseded(ledger, included, path)
    for digest in sorted(taken.bundle.named.keys() - taken.bundle.artifacts):
        if ledger.artifacts.holds(digest):
            ledger.artifacts.check(digest, taken.bundle.named[digest])
    try:
        for digest, file in read_artifacts(path):
            found, _size = ledger.artifacts.put(file)
            if found != digest:
                raise AlteredArtifactError(f"{path}: artifact {digest} changed while it was read")
        ledger.artifacts.settle()
    except OSError as error:
        raise LedgerError(f"{ledger.where}: the evidence cannot be stored: {error}") from error
    finally:
        ledger.artifacts.discard()
    trials = (entry for entry in read_entries(path) if isinstance(entry, TrialEntry))
    for batch in batched(trials, _BATCH):
        _seal(ledger, batch, taken)
    remarks = (entry for entry in read_entries(path) if isinstance(entry, _REMARKS))
    for remarks_batch in batched(remarks, _BATCH):
        _remark(ledger, remarks_batch, taken)
    return taken


_REMARKS = (ReviewEntry, RescoreEntry, SupersedeEntry)
type _Remark = ReviewEntry | RescoreEntry | SupersedeEntry


def _check_superseded(ledger: LedgerWriter, included: set[str], path: Path) -> None:
    """Refuse a trial whose supersession cannot be imported with it."""
    ledger.refresh()
    for entry in read_entries(path):
        if not isinstance(entry, SupersedeEntry) or entry.subject.record not in included:
            continue
        if entry.by.record not in included and not _is_sealed(ledger, entry.by):
            raise LedgerError(
                f"{path}: {entry.subject.trial_id} was superseded by {entry.by.trial_id}, which is "
                "left out; export both trials, or neither"
            )


def _seal(ledger: LedgerWriter, trials: Sequence[TrialEntry], taken: ImportedBundle) -> None:
    origin, tree = taken.bundle.checkpoint.origin, taken.bundle.checkpoint.tree
    entries, new = [], []
    for entry in trials:
        source = Source(kind="bundle", name=origin, seq=entry.seq, root=tree.root.hex())
        row = read_row(sourced := msgspec.structs.replace(entry, source=source))
        entries.append(sourced)
        new.append(NewEntry(sourced, row.subject, row.status))
    with ledger.writing():
        # Withholdings first: if the process is killed in between, no evidence is missing
        # unexplained.
        withheld = list(_find_missing(ledger, entries))
        if withheld:
            ledger.append(withheld)
        sealed = append_trials(ledger, new)
    taken.new += sum(answer.is_new for answer in sealed)
    taken.known += sum(not answer.is_new for answer in sealed)
    taken.without += sum(len(entry.artifacts) for entry in withheld)


def _find_missing(ledger: LedgerWriter, entries: list[TrialEntry]) -> Iterator[WithholdEntry]:
    for entry in entries:
        gone = {file.sha256 for file in entry.evidence if not ledger.artifacts.holds(file.sha256)}
        row = read_row(entry)
        if gone and ledger.find_sealed(row.experiment_id, row.trial_id) is None:
            yield WithholdEntry(
                at="",
                seq=0,
                subject=row.subject,
                entry=None,
                leaf=None,
                artifacts=tuple(sorted(gone)),
                reason="not in the bundle that the trial came in",
                author=AUTHOR,
            )


def _remark(ledger: LedgerWriter, remarks: tuple[_Remark, ...], taken: ImportedBundle) -> None:
    with ledger.writing():
        ledger.refresh()
        known = {
            _content(known.entry)
            for remark in remarks
            for known in list_remarks(ledger, remark.subject.record)
        }
        new = [
            entry for entry in remarks if _is_ours(ledger, entry) and _content(entry) not in known
        ]
        if new:
            ledger.append(new)
    taken.remarks += len(new)


def _is_ours(ledger: LedgerWriter, entry: _Remark) -> bool:
    """Whether every trial that it names is sealed here with the same record."""
    subjects = [entry.subject, entry.by] if isinstance(entry, SupersedeEntry) else [entry.subject]
    return all(_is_sealed(ledger, subject) for subject in subjects)


def _is_sealed(ledger: LedgerWriter, subject: Subject) -> bool:
    found = ledger.find_sealed(subject.experiment_id, subject.trial_id)
    return found is not None and found.record == subject.record


def _content(entry: AnyEntry | Withheld) -> bytes:
    """An entry without its position and time, for comparing content."""
    if isinstance(entry, Withheld):
        return b""
    return encode_entry(msgspec.structs.replace(entry, at="", seq=0))
