"""Everything that is known of one harbor trial, read once: its result, files, trace and task.

A trial comes from a stranger. Links are not followed out of it, and only plain files are opened.

Secrets are removed. Text that is cut or quoted on its way into a record is redacted before that:
half a secret is a secret too, and would no longer be found. The rest is redacted as it is written.
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
from proctor.record.cost import CostBasis
from proctor.record.ids import shown_name
from proctor.record.model import TrialRecord
from proctor.record.read import parse_record, render_record
from proctor.record.rules import Missing
from proctor.reward.profile import DEFAULT_PROFILE
from proctor.task.digests import TaskDigests, load_digests
from proctor.task.directory import Task, load_task
from proctor.task.manifest import FileDigest
from proctor.traces.entry import Entry, Object
from proctor.traces.trace import TRIAL_TRACES, Trace, find_trace
from proctor.traces.writer import Redactor

_STUCK: Final = "a secret is where it cannot be removed"


class PinnedFile(msgspec.Struct, frozen=True):
    """A file and the digest that was computed of it."""

    path: str
    """Relative to the trial, with `/`."""
    sha256: str
    size: int
    """In bytes."""


class Pins(msgspec.Struct, frozen=True, kw_only=True):
    """What fixes the inputs of a trial, and who says so."""

    task_checksum: str | None
    """Harbor's digest of the task directory."""
    task_lock_digest: str | None
    """Harbor's digest of what it would publish of the task, without its `sha256:`."""
    task_dataset_digest: str | None = None
    """The task's digest in a manifest of dataset digest v1."""
    is_task_recomputed: bool = False
    """Whether the digests were computed from the task's files; else they are the job's word."""
    configuration_sha256: str
    """Of agent.configuration as canonical JSON."""
    image_digest: str | None = None
    """Of the image, where the task names it by digest; harbor does not record what it built."""
    model_requested: str | None = None
    """The model that the agent was told to use."""
    models_reported: tuple[str, ...] = ()
    """The models that the trace says have answered."""
    trace: PinnedFile | None = None
    """The trace that the record names."""
    media: tuple[PinnedFile, ...] = ()
    """What entries of the trace name and lies with the trial."""


class MadeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one trial."""

    record: TrialRecord
    pins: Pins
    cost_basis: CostBasis
    """Where the record's amount of money comes from."""
    evidence: tuple[PinnedFile, ...]
    """Every plain file of the trial."""
    missing: tuple[Missing, ...]
    """What keeps the record from being complete."""
    notes: tuple[str, ...] = ()
    """What a reader of the record should know."""
    redactions: tuple[Object, ...] = ()
    """Secrets that were taken out: name, count, salted digest."""


class Evidence(msgspec.Struct, frozen=True):
    """What lies in a trial's directory."""

    files: dict[str, str]
    """Every plain file: where it lies, by its path relative to the trial."""
    trace: Trace | None
    notes: tuple[str, ...]
    """What was not followed or not used, and why."""


def load_evidence(directory: Path) -> Evidence:
    """The names of every plain file of a trial, and its trace.

    Raises:
        JobError: the directory cannot be read.
    """
    notes: list[str] = []
    files = dict(_find_files(str(directory), notes))
    candidates = [(kind, str(directory / name)) for kind, name in TRIAL_TRACES if name in files]
    trace, passed_over = find_trace(candidates)
    notes += [f"{reason.removeprefix(f'{directory}/')}; passed over" for reason in passed_over]
    if trace is not None:
        names = [path.removeprefix(f"{directory}/") for _, path in candidates]
        used = trace.path.removeprefix(f"{directory}/")
        others = names[names.index(used) + 1 :]
        notes += [f"{each} is there too; the trace of the record is {used}" for each in others]
    if any(path.startswith("steps/") and _is_trace(path) for path in files):
        notes.append("steps have traces of their own; they are evidence, and none is named")
    return Evidence(files, trace, tuple(notes))


def pin_files(files: Mapping[str, str]) -> tuple[PinnedFile, ...]:
    """The same files with their digests.

    Raises:
        JobError: a file cannot be read.
    """
    return tuple(_pin(Path(place), shown) for shown, place in files.items())


def _is_trace(path: str) -> bool:
    return path.endswith(tuple(f"/{name}" for _, name in TRIAL_TRACES))


def _find_files(directory: str, notes: list[str]) -> Iterator[tuple[str, str]]:
    try:
        for name, what in walk_files(directory):
            # A name need not be text; what is written is.
            shown = shown_name(name)
            if what is None:
                yield shown, f"{directory}/{name}"
            else:
                notes.append(f"{shown}: {what}; what it leads to is not evidence")
    except OSError as error:
        raise JobError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _pin(path: Path, shown: str) -> PinnedFile:
    try:
        return PinnedFile(shown, sha256_file(path), path.stat().st_size)
    except OSError as error:
        raise JobError(f"{path}: cannot be read: {error.strerror}") from error


class TaskGiven(msgspec.Struct, frozen=True):
    """The task directory that came with a trial, and its digests."""

    task: Task
    digests: TaskDigests
    files: tuple[FileDigest, ...]
    """Every file that the task's checksum covers."""
    is_compared: bool
    """Whether the trial or its job says a digest, and it is this one."""


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is made from."""

    directory: Path
    found: FoundTrial | None
    """The trial as it is scored; None for one that was killed before it wrote a result."""
    details: TrialDetails | None
    """What else its result.json says."""
    config: Object
    """The trial's whole config, as written."""
    asked: TrialConfigDocument
    """The same, as far as scoring and limits go."""
    lock: LockDocument | None
    evidence: Evidence
    given: TaskGiven | None
    """The task, where the person who imports has it."""

    @property
    def name(self) -> str:
        """Of the trial; an attempt that was kept has its number added, as in its own record."""
        trial, number = _find_kept(self.directory)
        name = self.document.trial_name if self.document else trial.name
        return f"{name}.attempt-{number}" if number else name

    @property
    def document(self) -> TrialDocument | None:
        """The trial's result.json, as far as scoring reads it."""
        return self.found.document if self.found else None

    @property
    def locked_digest(self) -> str | None:
        """The lock digest of the task, as the job recorded it, without its `sha256:`."""
        return _locked_digest(self.lock, self.config)


class ReadBefore(msgspec.Struct, frozen=True):
    """What the reader of a whole job knows of a trial before it is read."""

    lock: LockDocument | None
    """Of the job."""
    found: FoundTrial | None
    """The trial as it is scored; None for one without a result."""


def load_sources(path: str, task: str | None, before: ReadBefore | None = None) -> Sources:
    """Read a trial, and the task that it is said to have run.

    Raises:
        JobError: the trial cannot be read.
        TaskError: the task cannot be read, or is not the one that the trial ran.
    """
    check_is_trial(path)
    details = load_details(path)
    config = details.config if details else load_config(path)
    # A trial says nothing of the harbor that ran it; the job around it does.
    directory = Path(path).resolve()
    lock = before.lock if before else load_lock(str(_find_kept(directory)[0].parent))
    found = before.found if before else None
    if details is not None and found is None:
        found = load_trial(path, DEFAULT_PROFILE)
    checksum = found.document.task_checksum if found else None
    return Sources(
        directory=directory,
        found=found if details else None,
        details=details,
        config=config,
        asked=_parse_config(config, path),
        lock=lock,
        evidence=load_evidence(directory),
        given=_load_task(task, checksum, _locked_digest(lock, config)) if task else None,
    )


def _find_kept(directory: Path) -> tuple[Path, str | None]:
    """The trial's directory, and the number of the attempt that is kept in `attempts/N` of it."""
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


def _load_task(path: str, checksum: str | None, locked: str | None) -> TaskGiven:
    task = load_task(Path(path))
    digests = load_digests(task.directory)
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
    """The same without secrets in exceptions and in the names of media."""
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
    """The record without secrets.

    Raises:
        RecordError: what is left of it is no record.
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
    """What lies beside the record, without secrets, and what was taken out of both.

    Raises:
        RecordError: what is left of it has lost its meaning.
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
