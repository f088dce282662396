"""Read everything about one harbor trial, once: its result, files, trace and task.

A trial is untrusted. Links out of it are not followed, and only regular files are opened.
"""

from pathlib import Path

import msgspec

from proctor.errors import JobError, TaskError
from proctor.files import walk_files
from proctor.harbor.documents import (
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
from proctor.task.digests import TaskDigests, load_digests
from proctor.task.directory import Task, load_task
from proctor.task.manifest import FileDigest
from proctor.traces.entry import Object
from proctor.traces.trace import TRIAL_TRACES, Trace, find_trace


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
    files: frozenset[str]
    """Every regular file of the trial, by its path relative to it."""
    trace: Trace | None
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
    try:
        files = frozenset(name for name, what in walk_files(str(directory)) if what is None)
    except OSError as error:
        raise JobError(f"{error.filename}: cannot be read: {error.strerror}") from error
    candidates = [(kind, str(directory / name)) for kind, name in TRIAL_TRACES if name in files]
    return Sources(
        directory=directory,
        found=found if details else None,
        details=details,
        config=config,
        asked=_parse_config(config, path),
        lock=lock,
        files=files,
        trace=find_trace(candidates)[0],
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
