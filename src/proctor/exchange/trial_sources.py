"""Read everything about one harbor trial, once: its result, files, trace and task.

A trial is untrusted. Links out of it are not followed, and only regular files are opened.

Secrets are redacted. Text that is shortened or quoted in a record is redacted before that: half a
secret is still a secret, and would no longer be recognised. The rest is redacted when written.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from proctor.digest import sha256_file
from proctor.errors import JobError, RecordError, TaskError
from proctor.files import walk_files
from proctor.harbor.documents import (
    ExceptionDocument,
    LockDocument,
    TrialConfigDocument,
    TrialDetails,
    TrialDocument,
    check_is_trial,
    load_config,
    load_details,
    load_lock,
)
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.ledger.counting import ATTEMPT
from proctor.record.cost import CostBasis
from proctor.record.ids import shown_name
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record, render_record
from proctor.record.rules import Missing
from proctor.task.digests import TaskDigests, load_digests
from proctor.task.directory import Task, load_task
from proctor.task.manifest import FileDigest
from proctor.traces.entry import Entry, Object, TraceKind
from proctor.traces.trace import TRIAL_TRACES, Trace, find_trace
from proctor.traces.writer import Redactor

_STUCK: Final = "a secret is where it cannot be removed"


class PinnedFile(msgspec.Struct, frozen=True):
    """A file with its computed digest."""

    path: str
    """Path relative to the trial, with `/`."""
    sha256: str
    size: int
    """Size in bytes."""


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """Digests and names that pin the inputs of a trial."""

    task_checksum: str | None
    """harbor's digest of the task directory."""
    task_lock_digest: str | None
    """harbor's digest of the files of the task that it would publish, without `sha256:`."""
    task_dataset_digest: str | None = None
    """The task's digest in a manifest of dataset digest v1."""
    is_task_recomputed: bool = False
    """Whether the digests were computed from the task's files; else the job recorded them."""
    configuration_sha256: str
    """SHA-256 of agent.configuration as canonical JSON."""
    image_digest: str | None = None
    """Digest of the image, if the task names it by digest; harbor does not record what it built."""
    model_requested: str | None = None
    """The model that the agent was configured with."""
    models_reported: tuple[str, ...] = ()
    """The models that answered, according to the trace."""
    trace: PinnedFile | None = None
    """The trace named in the record."""
    media: tuple[PinnedFile, ...] = ()
    """Media files that the trace refers to and the trial contains."""


class MadeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record made of one trial, with its sources."""

    record: TrialRecord
    pins: Pins
    cost_basis: CostBasis
    """The source of the record's cost."""
    evidence: tuple[PinnedFile, ...]
    """Every regular file of the trial."""
    missing: tuple[Missing, ...]
    """What keeps the record from being complete."""
    notes: tuple[str, ...] = ()
    """Notes for readers of the record."""
    redactions: tuple[Object, ...] = ()
    """Redacted secrets: name, count, salted digest."""


class Evidence(msgspec.Struct, frozen=True):
    """The contents of a trial's directory."""

    files: dict[str, str]
    """Every regular file: its path on disk, by its path relative to the trial."""
    trace: Trace | None
    notes: tuple[str, ...]
    """What was not followed or not used, and why."""


def load_evidence(directory: Path) -> Evidence:
    """List every regular file of a trial, and read its trace."""
    notes: list[str] = []
    files = dict(_find_files(str(directory), notes))
    candidates = [(kind, str(directory / name)) for kind, name in TRIAL_TRACES if name in files]
    trace, passed_over = find_trace(candidates)
    notes += [f"{reason.removeprefix(f'{directory}/')}; passed over" for reason in passed_over]
    if trace is not None:
        # What commands printed is always there too.
        own = [path for kind, path in candidates if kind is not TraceKind.OUTPUT]
        names = [path.removeprefix(f"{directory}/") for path in own]
        used = trace.path.removeprefix(f"{directory}/")
        others = names[names.index(used) + 1 :] if used in names else []
        notes += [f"{each} exists too; the trace of the record is {used}" for each in others]
    if any(path.startswith("steps/") and _is_trace(path) for path in files):
        notes.append("steps have their own traces; they are evidence, but the record names none")
    return Evidence(files, trace, tuple(notes))


def pin_files(files: Mapping[str, str]) -> tuple[PinnedFile, ...]:
    """Hash the files."""
    return tuple(_pin(Path(place), shown) for shown, place in files.items())


def _is_trace(path: str) -> bool:
    return path.endswith(tuple(f"/{name}" for _, name in TRIAL_TRACES))


def _find_files(directory: str, notes: list[str]) -> Iterator[tuple[str, str]]:
    try:
        for name, what in walk_files(directory):
            # File names need not be valid text, but the record must be.
            shown = shown_name(name)
            if what is None:
                yield shown, f"{directory}/{name}"
            else:
                notes.append(f"{shown}: {what}; its target is not evidence")
    except OSError as error:
        raise JobError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _pin(path: Path, shown: str) -> PinnedFile:
    try:
        return PinnedFile(shown, sha256_file(path), path.stat().st_size)
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from error


class TaskGiven(msgspec.Struct, frozen=True):
    """The task directory given with a trial, and its digests."""

    task: Task
    digests: TaskDigests
    files: tuple[FileDigest, ...]
    """Every file that the task's checksum covers."""
    is_compared: bool
    """Whether the trial or its job recorded a digest, which then matched."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a record is made from."""

    directory: Path
    found: FoundTrial | None
    """The scored trial; None if it was killed before it wrote a result."""
    details: TrialDetails | None
    """Further contents of its result.json."""
    config: Object
    """The trial's complete config, as written."""
    asked: TrialConfigDocument
    """The parts of the config that affect scoring and limits."""
    lock: LockDocument | None
    evidence: Evidence
    given: TaskGiven | None
    """The task, if the importing user has it."""

    @property
    def name(self) -> str:
        """Name of the trial; a kept attempt has its number appended, as in its own record."""
        trial, number = _find_kept(self.directory)
        name = self.document.trial_name if self.document else trial.name
        return f"{name}{ATTEMPT}{number}" if number else name

    @property
    def document(self) -> TrialDocument | None:
        """The trial's result.json, as far as scoring reads it."""
        return self.found.document if self.found else None

    @property
    def locked_digest(self) -> str | None:
        """The lock digest of the task that the job recorded, without `sha256:`."""
        return _locked_digest(self.lock, self.config)


class ReadBefore(msgspec.Struct, frozen=True):
    """What is already known about a trial from reading its job."""

    lock: LockDocument | None
    """The job's lock.json."""
    found: FoundTrial | None = None
    """The scored trial; None for one without a result."""
    task: tuple[Task, TaskDigests] | None = None
    """The task that it is said to have run, and its digests."""


def load_sources(path: str, task: str | None, before: ReadBefore | None = None) -> Sources:
    """Read a trial, and the task that it is said to have run."""
    check_is_trial(path)
    details = load_details(path)
    config = details.config if details else load_config(path)
    # Only the job's lock.json records which harbor ran the trial.
    directory = Path(path).resolve()
    lock = before.lock if before else load_lock(str(_find_kept(directory)[0].parent))
    found = before.found if before else None
    if details is not None and found is None:
        found = load_trial(path, lock.harbor.profile if lock else None)
    checksum = found.document.task_checksum if found else None
    return Sources(
        directory=directory,
        found=found if details else None,
        details=details,
        config=config,
        asked=_parse_config(config, path),
        lock=lock,
        evidence=load_evidence(directory),
        given=_check_task(task, _read_task(task, before), checksum, _locked_digest(lock, config))
        if task
        else None,
    )


def _find_kept(directory: Path) -> tuple[Path, str | None]:
    """The trial's directory, and the number of the attempt if this is `attempts/N` in it."""
    if directory.parent.name == "attempts" and directory.name.isdecimal():
        return directory.parent.parent, directory.name
    return directory, None


def _parse_config(config: Object, path: str) -> TrialConfigDocument:
    try:
        return msgspec.convert(config, TrialConfigDocument)
    except msgspec.ValidationError as error:
        raise JobError(f"{path}: its config is not as harbor writes it: {error}") from error


def _locked_digest(lock: LockDocument | None, config: Object) -> str | None:
    task = config.get("task")
    asked = task if isinstance(task, dict) else {}
    digest = lock.find_digest(asked.get("path"), asked.get("name")) if lock else None
    return digest.removeprefix("sha256:") if digest else None


def _read_task(path: str, before: ReadBefore | None) -> tuple[Task, TaskDigests]:
    if before is not None and before.task is not None:
        return before.task
    task = load_task(Path(path))
    return task, load_digests(task.directory)


def _check_task(
    path: str, read: tuple[Task, TaskDigests], checksum: str | None, locked: str | None
) -> TaskGiven:
    task, digests = read
    said = (
        ("task_checksum", checksum, digests.task_checksum),
        ("lock digest", locked, digests.lock_digest),
    )
    for what, recorded, computed in said:
        if recorded is not None and recorded != computed:
            raise TaskError(
                f"{path}: not the task of this trial: its {what} is {computed}, "
                f"the trial ran {recorded}"
            )
    if digests.followed is None:
        raise TaskError(
            f"{path}: its links make more paths than can be listed; expected every file of the "
            "task under few of them"
        )
    return TaskGiven(task, digests, digests.followed, is_compared=bool(checksum or locked))


# Secrets


def redact_sources(sources: Sources, redactor: Redactor) -> Sources:
    """Redact secrets in exceptions and in the names of media."""
    found, evidence = sources.found, sources.evidence
    trace = _redact_media(evidence.trace, redactor) if evidence.trace else None
    if found is not None:
        document = _redact_exceptions(found.document, redactor)
        found = msgspec.structs.replace(found, document=document)
    return msgspec.structs.replace(
        sources,
        found=found,
        evidence=msgspec.structs.replace(evidence, trace=trace),
    )


def _redact_exceptions(document: TrialDocument, redactor: Redactor) -> TrialDocument:
    def clean(error: ExceptionDocument | None) -> ExceptionDocument | None:
        if error is None:
            return None
        texts = (error.exception_type, error.exception_message)
        return ExceptionDocument(*map(redactor.redact_text, texts))

    steps = [
        msgspec.structs.replace(step, exception_info=clean(step.exception_info))
        for step in document.step_results or ()
    ]
    return msgspec.structs.replace(
        document, exception_info=clean(document.exception_info), step_results=steps or None
    )


def _redact_media(trace: Trace, redactor: Redactor) -> Trace:
    def clean(entry: Entry) -> Entry:
        media = entry.media
        names = [redactor.redact_text(name) for name in media] if media else media
        return entry if names == media else msgspec.structs.replace(entry, media=names)

    return msgspec.structs.replace(trace, entries=list(map(clean, trace.entries)))


def redact_record(record: TrialRecord, redactor: Redactor) -> TrialRecord:
    """Redact secrets in a record.

    Raises:
        RecordError: the redacted record is not valid.
    """
    written = json.loads(render_record(record))
    clean = redactor.redact(written)
    if clean == written:
        return record
    try:
        return parse_record(json.dumps(clean).encode(), "the record").record
    except RecordError as error:
        raise RecordError(f"{_STUCK}: {error}") from error


def redact_rest(made: MadeRecord, redactor: Redactor) -> MadeRecord:
    """Redact secrets in everything but the record, and list all redactions.

    Raises:
        RecordError: the redacted values are not valid.
    """

    def clean[Value](value: Value) -> Value:
        return msgspec.convert(redactor.redact(msgspec.to_builtins(value)), type(value))

    try:
        made = msgspec.structs.replace(
            made,
            pins=clean(made.pins),
            cost_basis=clean(made.cost_basis),
            evidence=tuple(map(clean, made.evidence)),
            notes=tuple(map(redactor.redact_text, made.notes)),
        )
    except msgspec.ValidationError as error:
        raise RecordError(f"{_STUCK}: {error}") from error
    return msgspec.structs.replace(made, redactions=tuple(redactor.report()))
