"""Exports sealed trials as harbor jobs, every file byte for byte.

    JOB/…                         the job's own files, as they were when its last trial was sealed
    JOB/TRIAL/…                   a trial
    JOB/TRIAL/attempts/N/…        a kept attempt

An imported trial is written to the directory it came from; any other is placed by its ids. Links,
empty directories, file times and modes are not in a ledger and are not restored.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from proctor.errors import LedgerError, NotSealedError
from proctor.ledger.counting import ATTEMPT
from proctor.ledger.entry import EvidenceFile, TrialEntry, evidence_digest
from proctor.ledger.exchange.copying import read_checked_row, write_below
from proctor.ledger.keeping import JOB_PREFIX, check_evidence_path
from proctor.ledger.reader import LedgerReader
from proctor.ledger.withhold import list_withheld
from proctor.sentence import count_of, reason_of

_RESULT = f"{JOB_PREFIX}result.json"
_OF_A_TRIAL = ("result.json", "config.json")
# Sources whose trials are never harbor's, whatever their files are named.
_FOREIGN = ("inspect", "prime", "traces")
_KEPT = re.compile(rf"(.+){re.escape(ATTEMPT)}([0-9]{{1,9}})")
_OWN_NAMES: Mapping[int, str] = MappingProxyType({})
# Parts of a trial's path: JOB/TRIAL or JOB/TRIAL/attempts/N.
_DEPTHS = (2, 4)


class _Job(msgspec.Struct, frozen=True):
    """The field of a job's result that identifies it."""

    id: str | None = None


_JOB = msgspec.json.Decoder(_Job)


@dataclass(slots=True)
class Jobs:
    """The result of an export."""

    jobs: int = 0
    written: int = 0
    """Trials that are in the jobs now."""
    refused: list[str] = field(default_factory=list)
    """A message for everything that could not be exported."""
    too_large: set[int] = field(default_factory=set)
    """Positions of trials that there was no room for."""


@dataclass(slots=True)
class Room:
    """The remaining bytes and files that may be written."""

    size: int
    """Bytes."""
    files: int

    def take(self, files: Sequence[EvidenceFile]) -> bool:
        """Reserve room for these files; False if they do not fit."""
        size = sum(file.size for file in files)
        if size > self.size or len(files) > self.files:
            return False
        self.size -= size
        self.files -= len(files)
        return True


def write_jobs(
    ledger: LedgerReader,
    places: Iterable[int],
    target: Path,
    names: Mapping[int, str] = _OWN_NAMES,
    room: Room | None = None,
) -> Jobs:
    """Write the trials at these positions below a directory; existing files are not replaced.

    `names` are the former names of trials that were sealed under another one, by position. Trials
    that do not fit into `room`, by the sizes that their entries state, are left out.

    Raises:
        LedgerError: a file exists with other bytes, or cannot be written.
        RecordError: the ids of a trial are not valid directory names.
        DamageError: the ledger is damaged.
    """
    writer = _Writer(ledger, target, room)
    try:
        # The latest first: of several runs under one name, the job directory has the last.
        for seq in sorted(places, reverse=True):
            writer.write(seq, names.get(seq))
        writer.write_job_files()
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written: {reason_of(error)}") from error
    return writer.jobs


class _Writer:
    def __init__(self, ledger: LedgerReader, target: Path, room: Room | None) -> None:
        self._ledger = ledger
        self._room = room
        self._target = target
        # Digest of the evidence of each trial that was written, by its path.
        self._there: dict[str, str] = {}
        # The job's own files, from its most recently sealed trial.
        self._job_files: dict[str, list[EvidenceFile]] = {}
        # The job that was written under each name, by harbor's id.
        self._ids: dict[str, str] = {}
        # That id, by the digest of its result.json.
        self._read: dict[str, str | None] = {}
        self.jobs = Jobs()

    def write(self, seq: int, former_name: str | None) -> None:
        entry = self._ledger.entry(seq)
        if not isinstance(entry, TrialEntry):
            self.jobs.refused.append(f"entry {seq}: its bytes were withheld")
            return
        row = read_checked_row(entry, self._ledger.where)
        name = row.name
        own = [file for file in entry.evidence if not file.path.startswith(JOB_PREFIX)]
        # An agent may name its answer result.json: only the source shows what it is.
        is_foreign = entry.source is not None and entry.source.kind in _FOREIGN
        if is_foreign or not any(file.path in _OF_A_TRIAL for file in own):
            self.jobs.refused.append(f"{name}: not a harbor trial")
            return
        place = trial_path(entry, former_name)
        job = place.split("/")[0]
        job_files = [file for file in entry.evidence if file.path.startswith(JOB_PREFIX)]
        job_id = self._find_job_id(job_files)
        if job_id is not None and self._ids.setdefault(job, job_id) != job_id:
            self.jobs.refused.append(
                f"{name}: from another job that is also named {job}; use --experiment or --trial "
                "to export it separately"
            )
            return
        digest = evidence_digest(entry)
        if self._there.setdefault(place, digest) != digest:
            self.jobs.refused.append(
                f"{name}: a later trial is in {place}; use --trial or --experiment to export it"
            )
            return
        if self._room is not None and not self._room.take([*own, *job_files]):
            self.jobs.too_large.add(seq)
            self.jobs.refused.append(
                f"{name}: too large: {count_of(len(own), 'file')} with "
                f"{sum(file.size for file in own):,} bytes; {self._room.size:,} bytes and "
                f"{count_of(self._room.files, 'file')} are left of what is unpacked at most"
            )
            return
        self._write_files(own, place, "")
        self._job_files[job] = self._job_files.get(job) or job_files
        self.jobs.written += 1

    def _find_job_id(self, job_files: list[EvidenceFile]) -> str | None:
        """Harbor's id of the job of a trial, if the job's result.json states it."""
        found = next((file for file in job_files if file.path == _RESULT), None)
        if found is None or not self._ledger.artifacts.holds(found.sha256):
            return None
        digest = found.sha256
        if digest not in self._read:
            try:
                result = _JOB.decode(self._ledger.artifacts.load(digest, found.size))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                result = _Job()
            self._read[digest] = result.id
        return self._read[digest]

    def write_job_files(self) -> None:
        """Write the files of the jobs, after all trials were seen."""
        self.jobs.jobs = len(self._job_files)
        for job, files in self._job_files.items():
            if not files:
                self.jobs.refused.append(
                    f"{job}: the job's own files are not in the ledger: its trials were sealed "
                    "without them"
                )
            self._write_files(files, job, JOB_PREFIX)

    def _write_files(self, files: list[EvidenceFile], place: str, prefix: str) -> None:
        gone = [file.path for file in list_withheld(self._ledger, files)]
        if gone:
            self.jobs.refused.append(
                f"{place}: {count_of(len(gone), 'file')} withheld, such as {gone[0]}"
            )
        for file in files:
            if file.path not in gone:
                path = file.path.removeprefix(prefix)
                check_evidence_path(path, f"{self._ledger.where}: {place}")
                copy = partial(self._ledger.artifacts.copy_sealed, file.sha256, file.size)
                write_below(self._target, f"{place}/{path}", file.sha256, copy, size=file.size)


def trial_path(entry: TrialEntry, former_name: str | None = None) -> str:
    """The path of a trial among jobs: where it came from, else its experiment and id.

    `former_name` is its name in its job, if that is not its id.
    """
    source, row = entry.source, read_checked_row(entry, "a ledger")
    if source is not None and source.kind == "harbor" and _is_place(source.name):
        return source.name
    kept = _KEPT.fullmatch(row.trial_id)
    trial = f"{kept[1]}/attempts/{kept[2]}" if kept else former_name or row.trial_id
    job = source.name if source is not None and source.kind == "harbor" else row.experiment_id
    return f"{job}/{trial}" if _is_place(f"{job}/{trial}") else f"{row.experiment_id}/{trial}"


def _is_place(name: str) -> bool:
    try:
        check_evidence_path(name, "")
    except NotSealedError:
        return False
    return len(name.split("/")) in _DEPTHS
