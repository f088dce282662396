"""Sealing: a record and its evidence become an entry, or are refused with a sentence.

1. The record is read strictly; its ids must be names.
2. No declared secret may occur in the record or in the evidence.
3. The same trial with the same bytes is sealed once; with other bytes it is refused.
4. The evidence is kept, on the disk; then the entries are appended, all with one signature.

Nothing is written for what is refused.
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
    AROUND,
    Around,
    Keeper,
    check_evidence_path,
    open_around,
    open_files,
)
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.reader import SealedTrial
from proctor.record.document import check_strict
from proctor.record.evidence import find_evidence
from proctor.record.ids import check_id
from proctor.record.model import TrialRecord
from proctor.record.read import LoadedRecord, parse_record, render_record

LARGEST_RECORD = 8 << 20
"""Bytes of a record; some hundred thousand times an ordinary one's."""
SHORTEST_SECRET = 6
"""Characters. A shorter value, such as `1`, occurs everywhere and is no secret."""
_CHUNK = 1 << 20
_BEYOND = 1 << 63
"""The index is SQLite's, whose whole numbers have 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A trial that is to be sealed."""

    record: bytes
    """The record's file, in any generation of the format."""
    loaded: LoadedRecord | None = None
    """The same record as a value, where it was decoded already."""
    where: str
    """Where it comes from, for messages."""
    root: Path | None = None
    """The directory that the evidence lies in."""
    evidence: tuple[str, ...] = ()
    """Files under the root, relative, with slashes."""
    attached: Mapping[str, bytes] = field(default_factory=dict)
    """More evidence, small, that lies in no file: its bytes by the path it gets."""
    unseen: frozenset[str] = frozenset()
    """Paths of a container that the record names: nobody can look there, and a finding says so."""
    own_trial: str | None = None
    """Name of the trial, where proctor ran it and may have run it again under the same name."""
    around: Around | None = None
    """The job's own files, as they are when a trial is sealed first. They go on changing while it
    runs, so that others make no other trial."""
    findings: tuple[dict[str, Any], ...] = ()
    score: TrialScore | None = None
    cost_basis: str | None = None
    reason_code: str | None = None
    slot: Slot | None = None
    source: Source | None = None


class Sealed(msgspec.Struct, frozen=True):
    """What became of a submission."""

    seq: int
    experiment_id: str
    trial_id: str
    record: str
    """SHA-256 of the record as stored."""
    status: str
    """sealed, diagnostic when the record is partial, or withheld since it was sealed before."""
    is_new: bool
    """False where the very same was sealed before."""


class Secrets(msgspec.Struct, frozen=True):
    """Values that must not be sealed, by the names they are known under."""

    values: Mapping[str, str] = msgspec.field(default_factory=dict)

    def needles(self) -> dict[bytes, str]:
        """What to look for: a value as it is, and as JSON writes it, in one way or the other."""
        found: dict[bytes, str] = {}
        for name, value in self.values.items():
            if len(value) >= SHORTEST_SECRET:
                found[value.encode("utf-8", "surrogateescape")] = name
                found[msgspec.json.encode(value)[1:-1]] = name
                found[json.dumps(value)[1:-1].encode()] = name
        return found


def seal(
    ledger: OpenLedger, submissions: Sequence[Submission], secrets: Secrets | None = None
) -> list[Sealed]:
    """Seal trials with one signature; all of them are on the disk when this returns.

    Raises:
        NotSealedError: a record or its evidence may not be sealed.
        ConflictError: a trial is sealed already with other bytes.
        LedgerError: the ledger cannot be written.
    """
    needles = (secrets or Secrets()).needles()
    drafts = [_draft(submission, needles) for submission in submissions]
    ledger.keep_up()
    ledger.check_key()  # before any evidence is put
    for draft in drafts:
        _check_conflict(ledger, draft)
    keeper = Keeper(ledger)
    try:
        entries = [_make_entry(draft, keeper) for draft in drafts]
        ledger.artifacts.settle()
    except OSError as error:
        raise LedgerError(
            f"{ledger.where}: the evidence cannot be kept: {error}; seal again once it can"
        ) from error
    finally:
        ledger.artifacts.discard()
    with ledger.writing():
        return append_trials(ledger, entries)


def find_by_evidence(ledger: OpenLedger, submission: Submission) -> Sealed | None:
    """The trial of that name that is sealed with this very evidence, whatever its record says.

    Raises:
        NotSealedError: the record or its evidence may not be sealed.
    """
    draft = _draft(submission, {})
    name = (draft.subject.experiment_id, draft.subject.trial_id)
    found = ledger.find_sealed(*name)
    if found is None:
        return None
    # Of what is sealed nothing is put: its files are only measured.
    if found.evidence != evidence_digest(_make_entry(draft, Keeper(ledger)).entry):
        return None
    return Sealed(found.seq, *name, found.record, draft.status, is_new=False)


def check_submission(submission: Submission, secrets: Secrets | None = None) -> None:
    """Refuse what no ledger would take, before there is one.

    Raises:
        NotSealedError: the record or its evidence may not be sealed.
        RecordError: the record breaks the format.
    """
    _draft(submission, (secrets or Secrets()).needles())


class _Draft(msgspec.Struct, frozen=True):
    """A submission whose record is in order."""

    submission: Submission
    record: bytes
    """One line, as it will be stored."""
    subject: Subject
    status: str
    """How it is admitted."""


class NewEntry(msgspec.Struct, frozen=True):
    """An entry to be appended, and what its record says, so that it is not decoded again."""

    entry: TrialEntry
    subject: Subject
    status: str


def check_record(data: bytes, where: str, loaded: LoadedRecord | None = None) -> LoadedRecord:
    """The record in a file's bytes, read strictly, with ids that are names.

    `loaded` is the same record where it was decoded already, salvaging or not.

    Raises:
        NotSealedError: it is too large, or its ids are no names.
        RecordError: it breaks the format.
    """
    if len(data) > LARGEST_RECORD:
        raise NotSealedError(
            f"{where}: a record of {len(data):,} bytes; at most {LARGEST_RECORD:,}: "
            "what is so large belongs into a file of the evidence"
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
    if fault := find_path_fault(_list_paths(submission)):
        raise NotSealedError(f"{where}: {fault.message}")
    if loaded.record.completeness == "complete" and submission.root is not None:
        _check_evidence(loaded.record, submission.root, submission)
    # A record of the second generation is sealed as far as the first can hold it; its
    # submission has the original as evidence.
    text = submission.record if loaded.generation != "G2" else render_record(loaded.record)
    record = msgspec.json.format(text, indent=-1)
    _refuse_secrets([record], needles, where)
    if needles:
        _refuse_in_files(_evidence(submission), needles, where)
        if submission.around is not None:
            _refuse_in_files(open_around(submission.around), needles, where)
    _refuse_secrets(_beside(submission), needles, f"{where}: what goes beside its record")
    if loaded.generation != "G2":
        _check_listed(loaded.document, where)
    status = "sealed" if loaded.record.completeness == "complete" else "diagnostic"
    return _Draft(submission, record, _subject_of(loaded.record, record), status)


def _check_listed(document: dict[str, Any], where: str) -> None:
    """Refuse what the index has no place for, although the format of records allows it."""
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
    """What a trial would be sealed as.

    Raises:
        RecordError: its record cannot be read.
    """
    loaded = submission.loaded
    if loaded is None:
        loaded = parse_record(submission.record, submission.where, salvage=True)
    return _subject_of(loaded.record, msgspec.json.format(submission.record, indent=-1))


def _subject_of(record: TrialRecord, stored: bytes) -> Subject:
    return Subject(
        experiment_id=record.experiment_id, trial_id=record.trial_id, record=sha256_hex(stored)
    )


def _list_paths(submission: Submission) -> list[str]:
    around = submission.around.files if submission.around is not None else ()
    paths = (*submission.evidence, *submission.attached)
    return [*paths, *(f"{AROUND}{path}" for path in around)]


def _check_evidence(record: TrialRecord, root: Path, submission: Submission) -> None:
    for found in find_evidence(record, root):
        if found.is_problem and found.path not in submission.unseen:
            raise NotSealedError(f"{submission.where}: {record.trial_id!r}: {found.message}")


def _beside(submission: Submission) -> Iterator[bytes]:
    """What an entry says besides the record: names of files can give a secret away too."""
    said = (submission.findings, submission.score, submission.slot, submission.source)
    yield msgspec.json.encode(said)
    yield from (os.fsencode(path) for path in (*submission.evidence, *submission.attached))


def _refuse_secrets(pieces: Iterable[bytes], needles: Mapping[bytes, str], where: str) -> None:
    for data in pieces:
        for needle, name in needles.items():
            if needle in data:
                raise NotSealedError(
                    f"{where}: the value of {name} is in it, and a secret is not sealed; "
                    "remove it there and seal again"
                )


def _refuse_in_files(
    files: Iterable[tuple[str, BinaryIO]], needles: Mapping[bytes, str], where: str
) -> None:
    for path, file in files:
        with file:
            _refuse_secrets(_overlapping(file, needles), needles, f"{where}: {path}")


def _overlapping(file: BinaryIO, needles: Mapping[bytes, str]) -> Iterator[bytes]:
    """The file in pieces, none of which begins in the middle of a needle."""
    longest, rest = max(map(len, needles)), b""
    while chunk := file.read(_CHUNK):
        yield rest + chunk
        rest = (rest + chunk)[-longest + 1 :]


def _check_conflict(ledger: OpenLedger, draft: _Draft) -> None:
    """Before anything is written: other bytes under the same name."""
    subject = draft.subject
    found = ledger.find_sealed(subject.experiment_id, subject.trial_id)
    if found is not None and found.record != subject.record:
        raise ConflictError(
            f"{draft.submission.where}: trial {subject.trial_id} of {subject.experiment_id} is "
            f"sealed already, with the record {found.record}; this one is {subject.record}"
        )


def _make_entry(draft: _Draft, keeper: Keeper) -> NewEntry:
    """The entry of a trial, once its evidence is put."""
    submission, subject = draft.submission, draft.subject
    found = keeper.ledger.find_sealed(subject.experiment_id, subject.trial_id)
    files = [*keeper.put(_evidence(submission), is_new=found is None)]
    if submission.around is not None:
        files += keeper.put_around(submission.around, found)
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


def append_trials(ledger: OpenLedger, entries: Sequence[NewEntry]) -> list[Sealed]:
    """Append what is new, inside `writing`. Whoever sealed a trial meanwhile came first.

    Raises:
        ConflictError: a trial is sealed already with other bytes.
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
            found = SealedTrial(-1, earlier.subject.record, evidence_digest(earlier.entry))
        if found is None:
            if fault := find_trial_fault(each.entry, *name):
                raise NotSealedError(f"trial {name[1]} of {name[0]}: {fault.message}")
            new[name] = each
        else:
            _check_same(each, found)
    appended = ledger.append([each.entry for each in new.values()]) if new else ()
    places = dict(zip(new, appended, strict=True))
    return [_make_answer(each, places, before) for each in entries]


def _check_same(new: NewEntry, found: SealedTrial) -> None:
    subject, evidence = new.subject, evidence_digest(new.entry)
    sealed = f"trial {subject.trial_id} of {subject.experiment_id} is sealed already"
    if found.record != subject.record:
        raise ConflictError(
            f"{sealed}, with the record {found.record}; this one is {subject.record}"
        )
    if found.evidence not in (None, evidence):
        raise ConflictError(
            f"{sealed}, with the evidence {found.evidence}; this one's is {evidence}"
        )


def _make_answer(
    new: NewEntry,
    places: Mapping[tuple[str, str], int],
    before: Mapping[tuple[str, str], SealedTrial],
) -> Sealed:
    name = (new.subject.experiment_id, new.subject.trial_id)
    if name in places:
        return Sealed(places[name], *name, new.subject.record, new.status, is_new=True)
    found = before[name]
    status = new.status if found.evidence is not None else "withheld"
    return Sealed(found.seq, *name, new.subject.record, status, is_new=False)
