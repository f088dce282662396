"""Everything that is known of one harbor trial, read once."""

from pathlib import Path

import msgspec

from proctor.errors import JobError, TaskError
from proctor.exchange.trial_evidence import Evidence, load_evidence
from proctor.harbor.account import (
    LockAccount,
    TrialAccount,
    check_is_trial,
    load_account,
    load_config,
    load_lock,
)
from proctor.harbor.documents import TrialConfigDocument
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.reward.profile import DEFAULT_PROFILE
from proctor.task.digests import TaskDigests, load_digests
from proctor.task.directory import Task, load_task
from proctor.task.manifest import FileDigest
from proctor.traces.entry import Object


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
    account: TrialAccount | None
    """None for a trial that was killed before it wrote a result."""
    found: FoundTrial | None
    """The trial as it is scored."""
    config: Object
    """All that the trial was told, as written."""
    told: TrialConfigDocument
    """The same, as far as limits go."""
    lock: LockAccount | None
    evidence: Evidence
    given: TaskGiven | None
    """Whoever imports may have the task."""

    @property
    def name(self) -> str:
        """Of the trial; an attempt that was kept has its number added, as in its own record."""
        trial, number = _find_kept(self.directory)
        name = self.account.trial_name if self.account else trial.name
        return f"{name}.attempt-{number}" if number else name

    @property
    def locked_digest(self) -> str | None:
        """The lock digest of the task, as the job recorded it, without its `sha256:`."""
        return _locked_digest(self.lock, self.config)


class ReadBefore(msgspec.Struct, frozen=True):
    """What whoever reads a whole job knows of a trial before it is read."""

    lock: LockAccount | None
    """Of the job."""
    found: FoundTrial | None
    """The trial as it is scored; None for one without a result."""


def load_sources(path: str, task: str | None, before: ReadBefore | None = None) -> Sources:
    """Read a trial, and the task that it is said to have sat.

    Raises:
        JobError: the trial cannot be read.
        TaskError: the task cannot be read, or is not the one that the trial sat.
    """
    check_is_trial(path)
    account = load_account(path)
    config = account.config if account else load_config(path)
    # A trial says nothing of the harbor that ran it; the job around it does.
    directory = Path(path).resolve()
    lock = before.lock if before else load_lock(str(_find_kept(directory)[0].parent))
    found = before.found if before else None
    if account is not None and found is None:
        found = load_trial(path, DEFAULT_PROFILE)
    checksum = account.task_checksum if account else None
    return Sources(
        directory=directory,
        account=account,
        found=found,
        config=config,
        told=_parse_told(config, path),
        lock=lock,
        evidence=load_evidence(directory),
        given=_load_task(task, checksum, _locked_digest(lock, config)) if task else None,
    )


def _find_kept(directory: Path) -> tuple[Path, str | None]:
    """The trial's directory, and the number of the attempt that is kept in `attempts/N` of it."""
    if directory.parent.name == "attempts" and directory.name.isdecimal():
        return directory.parent.parent, directory.name
    return directory, None


def _parse_told(config: Object, path: str) -> TrialConfigDocument:
    try:
        return msgspec.convert(config, TrialConfigDocument)
    except msgspec.ValidationError as error:
        raise JobError(f"{path}: its config is not as harbor writes it: {error}") from error


def _locked_digest(lock: LockAccount | None, config: Object) -> str | None:
    task = lock.find_task(config) if lock else None
    return task.digest.removeprefix("sha256:") if task and task.digest else None


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
