"""Sealing: checks a record and its evidence, and appends them as an entry.

1. The record is parsed strictly; its ids must be valid names.
2. No declared secret may occur in the record or the evidence.
3. A trial is sealed once: the same bytes again are accepted, other bytes are refused.
4. The evidence is stored durably; then all entries are appended with one signature.

If a check fails, nothing is written.
"""

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from proctor.digest import sha256_hex
from proctor.errors import (
    ConflictError,
    LedgerError,
    NotSealedError,
    RecordError,
)
from proctor.ledger.admission import find_path_fault, find_trial_fault
from proctor.ledger.entry import (
    Slot,
    Source,
    Subject,
    TrialEntry,
    TrialScore,
    evidence_digest,
)
from proctor.ledger.keeping import (
    JOB_PREFIX,
    EvidenceWriter,
    JobFiles,
    check_evidence_path,
    open_files,
    open_job_files,
)
from proctor.ledger.reader import WAITING, LedgerWriter, SealedTrial
from proctor.record.document import check_strict
from proctor.record.evidence import find_evidence
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord
from proctor.record.read import LoadedRecord, parse_record, render_record

LARGEST_RECORD = 8 << 20
"""Bytes of a record; an ordinary one has a few kilobytes."""
SHORTEST_SECRET = 6
"""Characters. Shorter values, such as `1`, occur everywhere and are not secrets."""
_CHUNK = 1 << 20
# SQLite's integers have 64 bits.
_BEYOND = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A trial to be sealed."""

    record: bytes
    """The bytes of the record, in any generation of the format."""
    loaded: LoadedRecord | None = None
    """The decoded record, if it was decoded already."""
    where: str
    """Its source, for messages."""
    root: Path | None = None
    """The directory of the evidence files."""
    evidence: tuple[str, ...] = ()
    """Files under the root, by relative paths with slashes."""
    attached: Mapping[str, bytes] = field(default_factory=dict)
    """More evidence that is not in files: small contents by path."""
    unseen: frozenset[str] = frozenset()
    """Paths inside a container that the record names; they cannot be checked, and a finding says
    so."""
    own_trial: str | None = None
    """Name of the trial, if proctor ran it and may have run it again under the same name."""
    job_files: JobFiles | None = None
    """The job's own files. They change while the job runs; so for a trial that is already
    sealed, other files of the job are no conflict."""
    findings: tuple[dict[str, Any], ...] = ()
    score: TrialScore | None = None
    cost_basis: str | None = None
    reason_code: str | None = None
    slot: Slot | None = None
    source: Source | None = None


class Sealed(msgspec.Struct, frozen=True):
    """The result of sealing a submission."""

    seq: int
    experiment_id: str
    trial_id: str
    record: str
    """SHA-256 of the record as stored."""
    status: str
    """sealed, diagnostic (a partial record), withheld (after it was sealed before), or waiting (for
    a server that cannot be reached)."""
    is_new: bool
    """False if the same bytes were sealed before."""


class Secrets(msgspec.Struct, frozen=True):
    """Values that must not be sealed, by name."""

    values: Mapping[str, str] = msgspec.field(default_factory=dict)

    def needles(self) -> dict[bytes, str]:
        """The byte strings to search for: each value as it is and as JSON writes it."""
        found: dict[bytes, str] = {}
        for name, value in self.values.items():
            # JSON may escape characters of a secret, and encoders differ in which.
            if len(value) >= SHORTEST_SECRET:
                found[value.encode("utf-8", "surrogateescape")] = name
                found[msgspec.json.encode(value)[1:-1]] = name
                found[json.dumps(value)[1:-1].encode()] = name
        return found


def seal(
    ledger: LedgerWriter, submissions: Sequence[Submission], secrets: Secrets | None = None
) -> list[Sealed]:
    """Seal trials durably with one signature.

    Raises:
        NotSealedError: a record or its evidence may not be sealed.
        ConflictError: a trial is already sealed with different bytes.
        LedgerError: the ledger cannot be written.
    """
    needles = (secrets or Secrets()).needles()
    drafts = [_draft(submission, needles) for submission in submissions]
    ledger.keep_up()
    ledger.check_key()  # before any evidence is stored
    for draft in drafts:
        # Other bytes under the same name are refused before anything is written.
        subject = draft.subject
        found = ledger.find_sealed(subject.experiment_id, subject.trial_id)
        if found is not None and found.record != subject.record:
            raise ConflictError(
                f"{draft.submission.where}: {_describe_sealed(subject)}, with the record "
                f"{found.record}; this one is {subject.record}"
            )
    writer = EvidenceWriter(ledger)
    try:
        entries = [_make_entry(draft, writer) for draft in drafts]
        ledger.artifacts.settle()
    except OSError as error:
        raise LedgerError(
            f"{ledger.where}: the evidence cannot be stored: {error}; seal again once it can"
        ) from error
    finally:
        ledger.artifacts.discard()
    with ledger.writing():
        return append_trials(ledger, entries)


def find_by_evidence(ledger: LedgerWriter, submission: Submission) -> Sealed | None:
    """The trial sealed under the same name with the same evidence, whatever its record; or None."""
    draft = _draft(submission, {})
    name = (draft.subject.experiment_id, draft.subject.trial_id)
    found = ledger.find_sealed(*name)
    if found is None:
        return None
    # Nothing is stored for a sealed trial: the digests of its files are computed only.
    if found.evidence != evidence_digest(_make_entry(draft, EvidenceWriter(ledger)).entry):
        return None
    return Sealed(found.seq, *name, found.record, draft.status, is_new=False)


def check_submission(submission: Submission, secrets: Secrets | None = None) -> None:
    """Make all checks that need no ledger."""
    _draft(submission, (secrets or Secrets()).needles())


class _Draft(msgspec.Struct, frozen=True):
    """A submission whose record passed the checks."""

    submission: Submission
    record: bytes
    """One line, as it will be stored."""
    subject: Subject
    status: str
    """sealed or diagnostic."""


class NewEntry(msgspec.Struct, frozen=True):
    """An entry to be appended, with the ids of its record, so that it is not decoded again."""

    entry: TrialEntry
    subject: Subject
    status: str


def check_record(data: bytes, where: str, loaded: LoadedRecord | None = None) -> LoadedRecord:
    """Parse a record strictly, with valid names as ids.

    `loaded` is the decoded record, if it was decoded already, salvaging or not.

    Raises:
        NotSealedError: it is too large, or its ids are not valid names.
        RecordError: it is invalid.
    """
    if len(data) > LARGEST_RECORD:
        raise NotSealedError(
            f"{where}: a record of {len(data):,} bytes; at most {LARGEST_RECORD:,}: "
            "move large content into an evidence file"
        )
    if loaded is None:
        loaded = parse_record(data, where, salvage=True)
    check_strict(loaded.record, loaded.diagnostics, where)
    try:
        check_id(loaded.record.trial_id, "trial_id")
        check_id(loaded.record.experiment_id, "experiment_id")
    except RecordError as error:
        raise NotSealedError(f"{where}: {error}") from error
    return loaded


def _draft(submission: Submission, needles: Mapping[bytes, str]) -> _Draft:
    where = submission.where
    loaded = check_record(submission.record, where, submission.loaded)
    named = (*submission.evidence, *submission.attached)
    job_files = submission.job_files.files if submission.job_files is not None else ()
    if fault := find_path_fault([*named, *(f"{JOB_PREFIX}{path}" for path in job_files)]):
        raise NotSealedError(f"{where}: {fault.message}")
    if loaded.record.completeness == "complete" and submission.root is not None:
        for found in find_evidence(loaded.record, submission.root):
            if found.is_problem and found.path not in submission.unseen:
                raise NotSealedError(f"{where}: {loaded.record.trial_id!r}: {found.message}")
    # A second-generation record is converted to the first generation as far as that can represent
    # it; the original is part of the evidence.
    text = submission.record if loaded.generation != "G2" else render_record(loaded.record)
    # One line; otherwise the record keeps its bytes, and so its digest.
    record = msgspec.json.format(text, indent=-1)
    # Checked on the final bytes, after conversion and formatting.
    _refuse_secrets([record], needles, where)
    if needles:
        _refuse_in_files(_evidence(submission), needles, where)
        if submission.job_files is not None:
            _refuse_in_files(open_job_files(submission.job_files), needles, where)
    # What an entry contains apart from the record: file names can reveal a secret too.
    said = (submission.findings, submission.score, submission.slot, submission.source)
    others = [msgspec.json.encode(said), *map(os.fsencode, named)]
    _refuse_secrets(others, needles, f"{where}: its findings, score or file names")
    if loaded.generation != "G2":
        _check_listed(loaded.document, where)
    status = "sealed" if loaded.record.completeness == "complete" else "diagnostic"
    return _Draft(submission, record, _subject_of(loaded.record, record), status)


def check_stored(entry: TrialEntry, where: str) -> NewEntry:
    """Check the entry of a trial that another machine made, as `seal` checks its own.

    Raises:
        NotSealedError: it may not be sealed.
        RecordError: its record is invalid.
    """
    record = bytes(entry.record)
    loaded = check_record(record, where)
    if loaded.generation == "G2" or msgspec.json.format(record, indent=-1) != record:
        raise NotSealedError(f"{where}: its record is not in the form that is stored")
    _check_listed(loaded.document, where)
    subject = _subject_of(loaded.record, record)
    if fault := find_trial_fault(entry, subject.experiment_id, subject.trial_id):
        raise NotSealedError(f"{where}: {fault.message}")
    status = "sealed" if loaded.record.completeness == "complete" else "diagnostic"
    return NewEntry(entry, subject, status)


def _check_listed(document: dict[str, Any], where: str) -> None:
    """Refuse valid records that the index cannot store."""
    if not isinstance(document["timestamp"], str):
        raise NotSealedError(
            f"{where}: the record cannot be listed: timestamp is {document['timestamp']!r}; "
            "expected a text"
        )
    reward = document["evaluation"]["reward"]
    if isinstance(reward, int) and not -_BEYOND <= reward < _BEYOND:
        raise NotSealedError(
            f"{where}: the record cannot be listed: evaluation.reward is a whole number of "
            "more than 64 bits"
        )


def identify_submission(submission: Submission) -> Subject:
    """The ids and record digest that a trial would be sealed with."""
    loaded = submission.loaded
    if loaded is None:
        loaded = parse_record(submission.record, submission.where, salvage=True)
    return _subject_of(loaded.record, msgspec.json.format(submission.record, indent=-1))


def _subject_of(record: TrialRecord, stored: bytes) -> Subject:
    return Subject(
        experiment_id=record.experiment_id, trial_id=record.trial_id, record=sha256_hex(stored)
    )


def _refuse_secrets(pieces: Iterable[bytes], needles: Mapping[bytes, str], where: str) -> None:
    for data in pieces:
        for needle, name in needles.items():
            if needle in data:
                raise NotSealedError(
                    f"{where}: contains the value of {name}; secrets are not sealed: "
                    "remove it there and seal again"
                )


def _refuse_in_files(
    files: Iterable[tuple[str, BinaryIO]], needles: Mapping[bytes, str], where: str
) -> None:
    for path, file in files:
        with file:
            _refuse_secrets(_overlapping(file, needles), needles, f"{where}: {path}")


def _overlapping(file: BinaryIO, needles: Mapping[bytes, str]) -> Iterator[bytes]:
    """The file in chunks that overlap, so that no needle is split between two."""
    longest, rest = max(map(len, needles)), b""
    while chunk := file.read(_CHUNK):
        yield rest + chunk
        rest = (rest + chunk)[-longest + 1 :]


def _make_entry(draft: _Draft, writer: EvidenceWriter) -> NewEntry:
    """Store the evidence of a trial, and make its entry."""
    submission, subject = draft.submission, draft.subject
    found = writer.ledger.find_sealed(subject.experiment_id, subject.trial_id)
    files = [*writer.put(_evidence(submission), is_new=found is None)]
    if submission.job_files is not None:
        files += writer.put_job_files(submission.job_files, found)
    entry = TrialEntry(
        at="",
        seq=0,
        record=msgspec.Raw(draft.record),
        evidence=tuple(sorted(files)),
        findings=submission.findings,
        score=submission.score,
        cost_basis=submission.cost_basis,
        reason_code=submission.reason_code,
        slot=submission.slot,
        source=submission.source,
    )
    return NewEntry(entry, subject, draft.status)


def _evidence(submission: Submission) -> Iterator[tuple[str, BinaryIO]]:
    if submission.evidence:
        yield from open_files(submission.root or Path(), submission.evidence, submission.where)
    for path, data in submission.attached.items():
        check_evidence_path(path, submission.where)
        yield path, io.BytesIO(data)


def append_trials(ledger: LedgerWriter, entries: Sequence[NewEntry]) -> list[Sealed]:
    """Append the new entries; call it inside `writing`.

    Another process may have sealed some of the trials in between; its entries take precedence.

    Raises:
        ConflictError: a trial is already sealed with different bytes.
        NotSealedError: an entry would not be admitted when it is read.
        OSError: they cannot be written.
    """
    new: dict[tuple[str, str], NewEntry] = {}
    before: dict[tuple[str, str], SealedTrial] = {}
    for each in entries:
        name = (each.subject.experiment_id, each.subject.trial_id)
        found = ledger.find_sealed(*name)
        if found is not None:
            before[name] = found
        elif name in new:
            earlier = new[name]
            # The same trial twice in one batch: the second must be equal to the first.
            found = SealedTrial(-1, earlier.subject.record, evidence_digest(earlier.entry))
        if found is None:
            if fault := find_trial_fault(each.entry, *name):
                raise NotSealedError(f"trial {name[1]} of {name[0]}: {fault.message}")
            new[name] = each
        else:
            _check_same(each, found)
    appended = ledger.append([each.entry for each in new.values()]) if new else ()
    places = dict(zip(new, appended, strict=True))
    answers = []
    for each in entries:
        name = (each.subject.experiment_id, each.subject.trial_id)
        is_new = name in places
        seq = places[name] if is_new else before[name].seq
        status = each.status if is_new or before[name].evidence is not None else "withheld"
        status = "waiting" if seq == WAITING else status
        answers.append(Sealed(seq, *name, each.subject.record, status, is_new=is_new))
    return answers


def _check_same(new: NewEntry, found: SealedTrial) -> None:
    subject, evidence = new.subject, evidence_digest(new.entry)
    sealed = _describe_sealed(subject)
    if found.record != subject.record:
        raise ConflictError(
            f"{sealed}, with the record {found.record}; this one is {subject.record}"
        )
    if found.evidence not in (None, evidence):
        raise ConflictError(
            f"{sealed}, with the evidence {found.evidence}; this one's is {evidence}"
        )


def _describe_sealed(subject: Subject) -> str:
    return f"trial {subject.trial_id} of {subject.experiment_id} is sealed already"
