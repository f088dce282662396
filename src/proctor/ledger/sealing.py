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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import msgspec

from proctor.digest import sha256_hex, sha256_pieces
from proctor.errors import (
    ConflictError,
    DamageError,
    LedgerError,
    NotSealedError,
    RecordError,
)
from proctor.files import open_plain
from proctor.ledger.entry import (
    EvidenceFile,
    Slot,
    Source,
    TrialEntry,
    TrialScore,
    evidence_digest,
    record_digest,
)
from proctor.ledger.head import RecordHead, read_head_of
from proctor.ledger.ledger import Ledger, SealedTrial
from proctor.record.evidence import check_evidence
from proctor.record.ids import check_id
from proctor.record.loaded import LoadedRecord
from proctor.record.read import parse_record
from proctor.record.write import render_record

LARGEST_RECORD = 8 << 20
"""Bytes of a record; some hundred thousand times an ordinary one's."""
SHORTEST_SECRET = 6
"""Characters. A shorter value, such as `1`, occurs everywhere and is no secret."""
LONGEST_PATH = 1000
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A trial that is to be sealed."""

    record: bytes
    """The record's file, in any generation of the format."""
    where: str
    """Where it comes from, for messages."""
    root: Path | None = None
    """The directory that the evidence lies in."""
    evidence: tuple[str, ...] = ()
    """Files under the root, relative, with slashes."""
    attached: Mapping[str, bytes] = field(default_factory=dict)
    """More evidence, small, that lies in no file: its bytes by the path it gets."""
    findings: tuple[dict[str, Any], ...] = ()
    score: TrialScore | None = None
    cost_basis: str | None = None
    reason_code: str | None = None
    slot: Slot | None = None
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Sealed:
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


@dataclass(frozen=True, slots=True)
class Secrets:
    """Values that must not be sealed, by the names they are known under."""

    values: Mapping[str, str] = field(default_factory=dict)

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
    ledger: Ledger, submissions: Sequence[Submission], secrets: Secrets | None = None
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
    try:
        entries = [_keep_evidence(ledger, draft) for draft in drafts]
        ledger.artifacts.settle()
    except OSError as error:
        raise LedgerError(
            f"{ledger.directory}: the evidence cannot be kept: {error}; seal again once it can"
        ) from error
    with ledger.writing():
        return append_trials(ledger, entries)


def find_by_evidence(ledger: Ledger, submission: Submission) -> Sealed | None:
    """The trial of that name that is sealed with this very evidence, whatever its record says.

    Raises:
        NotSealedError: the record or its evidence may not be sealed.
    """
    draft = _draft(submission, {})
    name = (draft.head.experiment_id, draft.head.trial_id)
    found = ledger.find_sealed(*name)
    if found is None or found.evidence != evidence_digest(_measured(draft)):
        return None
    return Sealed(found.seq, *name, found.record, draft.head.status, is_new=False)


def check_submission(submission: Submission, secrets: Secrets | None = None) -> None:
    """Refuse what no ledger would take, before there is one.

    Raises:
        NotSealedError: the record or its evidence may not be sealed.
        RecordError: the record breaks the format.
    """
    _draft(submission, (secrets or Secrets()).needles())


@dataclass(frozen=True, slots=True)
class _Draft:
    """A submission whose record is in order."""

    submission: Submission
    record: bytes
    """One line, as it will be stored."""
    head: RecordHead


def check_record(data: bytes, where: str) -> LoadedRecord:
    """The record in a file's bytes, read strictly, with ids that are names.

    Raises:
        NotSealedError: it is too large, or its ids are no names.
        RecordError: it breaks the format.
    """
    if len(data) > LARGEST_RECORD:
        raise NotSealedError(
            f"{where}: a record of {len(data):,} bytes; at most {LARGEST_RECORD:,}: "
            "what is so large belongs into a file of the evidence"
        )
    loaded = parse_record(data, where)
    try:
        check_id(loaded.record.trial_id, "trial_id")
        check_id(loaded.record.experiment_id, "experiment_id")
    except RecordError as error:
        raise NotSealedError(f"{where}: {error}") from error
    return loaded


def _draft(submission: Submission, needles: Mapping[bytes, str]) -> _Draft:
    where = submission.where
    loaded = check_record(submission.record, where)
    if loaded.record.completeness == "complete" and submission.root is not None:
        try:
            check_evidence(loaded.record, submission.root)
        except RecordError as error:
            raise NotSealedError(f"{where}: {error}") from error
    # A record of the second generation is sealed as far as the first can hold it; whoever seals
    # it gives the original as evidence.
    text = submission.record if loaded.generation != "G2" else render_record(loaded.record)
    record = msgspec.json.format(text, indent=-1)
    _refuse_secrets([record], needles, where)
    for path, file in _evidence(submission) if needles else ():
        with file:
            _refuse_secrets(_overlapping(file, needles), needles, f"{where}: {path}")
    _refuse_secrets(_beside(submission), needles, f"{where}: what goes beside its record")
    entry = TrialEntry(at="", seq=0, record=msgspec.Raw(record))
    try:
        return _Draft(submission, record, read_head_of(entry))
    except DamageError as error:
        raise NotSealedError(f"{where}: the record cannot be listed: {error.__cause__}") from error


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
                    f"{where}: the value of {name} stands in it, and a secret is not sealed; "
                    "take it out of there and seal again"
                )


def _overlapping(file: BinaryIO, needles: Mapping[bytes, str]) -> Iterator[bytes]:
    """The file in pieces, none of which begins in the middle of a needle."""
    longest, rest = max(map(len, needles)), b""
    while chunk := file.read(_CHUNK):
        yield rest + chunk
        rest = (rest + chunk)[-longest + 1 :]


def _check_conflict(ledger: Ledger, draft: _Draft) -> None:
    """Before anything is written: other bytes under the same name."""
    head, digest = draft.head, sha256_hex(draft.record)
    found = ledger.find_sealed(head.experiment_id, head.trial_id)
    if found is not None and found.record != digest:
        raise ConflictError(
            f"{draft.submission.where}: trial {head.trial_id} of {head.experiment_id} is sealed "
            f"already, with the record {found.record}; this one is {digest}"
        )


def _keep_evidence(ledger: Ledger, draft: _Draft) -> TrialEntry:
    found = ledger.find_sealed(draft.head.experiment_id, draft.head.trial_id)
    # Of what is sealed already nothing is put: it may have been withheld since.
    return _measured(draft, ledger.artifacts.put if found is None else _measure)


def _measured(
    draft: _Draft, measure: Callable[[BinaryIO], tuple[str, int]] | None = None
) -> TrialEntry:
    """The entry that a draft becomes; `measure` gives a file's digest and size."""
    submission = draft.submission
    files = []
    for path, file in _evidence(submission):
        with file:
            digest, size = (measure or _measure)(file)
        files.append(EvidenceFile(path=path, sha256=digest, size=size))
    return TrialEntry(
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


def _measure(file: BinaryIO) -> tuple[str, int]:
    digest = sha256_pieces(iter(lambda: file.read(_CHUNK), b""))
    return digest, file.tell()


def _evidence(submission: Submission) -> Iterator[tuple[str, BinaryIO]]:
    for path in submission.evidence:
        yield path, _open_evidence(submission, path)
    for path, data in submission.attached.items():
        check_evidence_path(path, submission.where)
        yield path, io.BytesIO(data)


def _open_evidence(submission: Submission, path: str) -> BinaryIO:
    """A plain file under the root: no link on the way leads out of it."""
    check_evidence_path(path, submission.where)
    root = os.path.realpath(submission.root or "")
    try:
        parent = os.path.realpath(os.path.split(f"{root}/{path}")[0], strict=True)
        if parent != root and not parent.startswith(f"{root}/"):
            raise NotSealedError(f"{submission.where}: {path!r} leads out of {root!r}")
        return open_plain(f"{root}/{path}")
    except OSError as error:
        raise NotSealedError(
            f"{submission.where}: evidence {path!r} cannot be read: {error.strerror}"
        ) from error


def check_evidence_path(path: str, where: str) -> None:
    """Refuse a name of evidence that could lead anywhere else.

    Raises:
        NotSealedError: it is no plain relative path.
    """
    parts = PurePosixPath(path).parts
    is_plain = str(PurePosixPath(path)) == path and path.isprintable() and parts
    if not is_plain or path.startswith("/") or ".." in parts or len(path) > LONGEST_PATH:
        raise NotSealedError(f"{where}: evidence {path[:80]!r}; expected a plain relative path")


def append_trials(ledger: Ledger, entries: Sequence[TrialEntry]) -> list[Sealed]:
    """Append what is new, inside `writing`. Whoever sealed a trial meanwhile came first.

    Raises:
        ConflictError: a trial is sealed already with other bytes.
        OSError: they cannot be written.
    """
    new: dict[tuple[str, str], TrialEntry] = {}
    before: dict[tuple[str, str], SealedTrial] = {}
    for entry in entries:
        name = _name(entry)
        found = ledger.find_sealed(*name)
        if found is not None:
            before[name] = found
        elif name in new:
            found = SealedTrial(-1, record_digest(new[name]), evidence_digest(new[name]))
        if found is None:
            new[name] = entry
        else:
            _check_same(entry, found)
    places = dict(zip(new, ledger.append(list(new.values())), strict=True)) if new else {}
    return [_tell(entry, places, before) for entry in entries]


def _name(entry: TrialEntry) -> tuple[str, str]:
    head = read_head_of(entry)
    return head.experiment_id, head.trial_id


def _check_same(entry: TrialEntry, found: SealedTrial) -> None:
    experiment_id, trial_id = _name(entry)
    sealed = f"trial {trial_id} of {experiment_id} is sealed already"
    if found.record != record_digest(entry):
        raise ConflictError(
            f"{sealed}, with the record {found.record}; this one is {record_digest(entry)}"
        )
    if found.evidence not in (None, evidence_digest(entry)):
        raise ConflictError(
            f"{sealed}, with the evidence {found.evidence}; this one's is {evidence_digest(entry)}"
        )


def _tell(
    entry: TrialEntry,
    places: Mapping[tuple[str, str], int],
    before: Mapping[tuple[str, str], SealedTrial],
) -> Sealed:
    head, digest = read_head_of(entry), record_digest(entry)
    name = (head.experiment_id, head.trial_id)
    if name in places:
        return Sealed(places[name], *name, digest, head.status, is_new=True)
    found = before[name]
    status = head.status if found.evidence is not None else "withheld"
    return Sealed(found.seq, *name, digest, status, is_new=False)
