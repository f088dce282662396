"""Sealed trials of harbor's jobs as harbor keeps them, every file byte for byte.

    JOB/…                         the job's own files, as they were when its last trial was sealed
    JOB/TRIAL/…                   a trial
    JOB/TRIAL/attempts/N/…        an attempt that was kept

A trial that was imported goes back into the directory it came from; any other goes by its ids. What
a ledger does not hold does not come back: links, empty directories, times and modes of files.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

import msgspec

from proctor.errors import LedgerError, NotSealedError
from proctor.ledger.entry import EvidenceFile, TrialEntry, evidence_digest
from proctor.ledger.exchange.copying import read_checked_row, write_below
from proctor.ledger.keeping import AROUND, check_evidence_path
from proctor.ledger.reader import LedgerReader
from proctor.ledger.withhold import find_withheld
from proctor.sentence import count_of, reason_of

_RESULT = f"{AROUND}result.json"
_OF_A_TRIAL = ("result.json", "config.json")
_FOREIGN = ("prime", "traces")
"""Where trials come from that are never harbor's, whatever their files are called."""
_KEPT = re.compile(r"(.+)\.attempt-([0-9]{1,9})")
_OWN_NAMES: Mapping[int, str] = MappingProxyType({})
_DEPTHS = (2, 4)
"""Parts of a trial's place: JOB/TRIAL, JOB/TRIAL/attempts/N."""


class _Job(msgspec.Struct, frozen=True):
    """As much of a job's result as tells it from another."""

    id: str | None = None


_JOB = msgspec.json.Decoder(_Job)


@dataclass(slots=True)
class Jobs:
    """What was written, and what was not."""

    jobs: int = 0
    written: int = 0
    """Trials that are there now."""
    refused: list[str] = field(default_factory=list)
    """A sentence for everything that could not be given back."""
    too_large: set[int] = field(default_factory=set)
    """Places of trials that there was no room for."""


@dataclass(slots=True)
class Room:
    """What may be written at most; less with every trial that is."""

    size: int
    """Bytes."""
    files: int

    def take(self, files: Sequence[EvidenceFile]) -> bool:
        """Whether these fit in; then there is less."""
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
    """Write the trials at these places of the log below a directory; nothing there is replaced.

    `names` are those of trials that lay under another name than they are sealed as, by place.
    Trials that there is no room for are left out, by the sizes that their entries state.

    Raises:
        LedgerError: a file is there with other bytes, or cannot be written.
        RecordError: the ids of a trial may not become names of directories.
        DamageError: the ledger does not hold what it should.
    """
    writer = _Writer(ledger, target, room)
    try:
        # The last one first: what was run again under its name is what lies in the job.
        for seq in sorted(places, reverse=True):
            writer.write(seq, names.get(seq))
        writer.write_around()
    except OSError as error:
        raise LedgerError(f"{target}: cannot be written: {reason_of(error)}") from error
    return writer.jobs


class _Writer:
    def __init__(self, ledger: LedgerReader, target: Path, room: Room | None) -> None:
        self._ledger = ledger
        self._room = room
        self._target = target
        self._there: dict[str, str] = {}
        """Digest of the evidence of each trial that is written, by its place."""
        self._around: dict[str, list[EvidenceFile]] = {}
        """The job's own files, those of the trial that was sealed last."""
        self._ids: dict[str, str] = {}
        """Which job is written under each name, by harbor's own id of it."""
        self._read: dict[str, str | None] = {}
        """That id, by the digest of the result.json it stands in."""
        self.jobs = Jobs()

    def write(self, seq: int, lay_as: str | None) -> None:
        entry = self._ledger.entry(seq)
        if not isinstance(entry, TrialEntry):
            self.jobs.refused.append(f"entry {seq}: its bytes were withheld")
            return
        row = read_checked_row(entry, self._ledger.where)
        name = row.name
        own = [file for file in entry.evidence if not file.path.startswith(AROUND)]
        # An agent may call its answer result.json: where it came from tells what it is.
        is_foreign = entry.source is not None and entry.source.kind in _FOREIGN
        if is_foreign or not any(file.path in _OF_A_TRIAL for file in own):
            self.jobs.refused.append(f"{name}: no trial of harbor's")
            return
        place = find_place(entry, lay_as)
        job = place.split("/")[0]
        around = [file for file in entry.evidence if file.path.startswith(AROUND)]
        job_id = self._find_job_id(around)
        if job_id is not None and self._ids.setdefault(job, job_id) != job_id:
            self.jobs.refused.append(
                f"{name}: of another job that is called {job} too; --experiment or --trial takes "
                "it out apart"
            )
            return
        digest = evidence_digest(entry)
        if self._there.setdefault(place, digest) != digest:
            self.jobs.refused.append(
                f"{name}: a later trial is in {place}; --trial or --experiment takes it out apart"
            )
            return
        if self._room is not None and not self._room.take([*own, *around]):
            self.jobs.too_large.add(seq)
            self.jobs.refused.append(
                f"{name}: too large: {count_of(len(own), 'file')} with "
                f"{sum(file.size for file in own):,} bytes; {self._room.size:,} bytes and "
                f"{count_of(self._room.files, 'file')} are left of what is unpacked at most"
            )
            return
        self._write_files(own, place, "")
        self._around[job] = self._around.get(job) or around
        self.jobs.written += 1

    def _find_job_id(self, around: list[EvidenceFile]) -> str | None:
        """Harbor's id of the job that a trial is of, where the job's result.json tells it."""
        found = next((file for file in around if file.path == _RESULT), None)
        if found is None or not self._ledger.artifacts.holds(found.sha256):
            return None
        digest = found.sha256
        if digest not in self._read:
            try:
                told = _JOB.decode(self._ledger.artifacts.load(digest, found.size))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                told = _Job()
            self._read[digest] = told.id
        return self._read[digest]

    def write_around(self) -> None:
        """The files of the jobs, once it is known which are the last."""
        self.jobs.jobs = len(self._around)
        for job, files in self._around.items():
            if not files:
                self.jobs.refused.append(
                    f"{job}: the job's own files are not in the ledger: its trials were sealed "
                    "without them"
                )
            self._write_files(files, job, AROUND)

    def _write_files(self, files: list[EvidenceFile], place: str, prefix: str) -> None:
        gone = [file.path for file in find_withheld(self._ledger, files)]
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


def find_place(entry: TrialEntry, lay_as: str | None = None) -> str:
    """Where a trial lies among jobs: where it came from, else by its experiment and its id.

    `lay_as` is the name that it had in its job, where that is not its id.

    Raises:
        RecordError: its ids may not become names of directories.
        DamageError: there is no record in the entry.
    """
    source, row = entry.source, read_checked_row(entry, "a ledger")
    if source is not None and source.kind == "harbor" and _is_place(source.name):
        return source.name
    kept = _KEPT.fullmatch(row.trial_id)
    trial = f"{kept[1]}/attempts/{kept[2]}" if kept else lay_as or row.trial_id
    job = source.name if source is not None and source.kind == "harbor" else row.experiment_id
    return f"{job}/{trial}" if _is_place(f"{job}/{trial}") else f"{row.experiment_id}/{trial}"


def _is_place(name: str) -> bool:
    try:
        check_evidence_path(name, "")
    except NotSealedError:
        return False
    return len(name.split("/")) in _DEPTHS
