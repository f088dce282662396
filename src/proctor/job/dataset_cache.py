"""What of a dataset is in the cache, and whether it is as it was fetched and published."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from proctor.errors import TaskError
from proctor.harbor.configs import TaskConfig
from proctor.job.cache import Caches
from proctor.job.fetching import Fetching
from proctor.job.git_repository import COMMIT
from proctor.job.git_tasks import (
    GitTask,
    check_as_fetched,
    fetch_git_tasks,
    find_cached,
    git_key,
)
from proctor.job.published import RegistryDataset, RegistryTask, check_published, digest_dataset
from proctor.task.digests import lock_digest


class TaskState(StrEnum):
    """Whether a task is in the cache."""

    CACHED = "cached"
    LOCAL = "local"
    """It is a directory of this machine, which is not cached."""
    MISSING = "not fetched"
    MOVING = "not pinned"
    """Its registry names no commit, so that it is fetched each time."""
    REFUSED = "refused"
    """It is not as it was fetched or published, or cannot be fetched."""


class DatasetTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a dataset, and its state."""

    source: RegistryTask
    state: TaskState
    directory: Path | None = None
    digest: str | None = None
    """As in lock.json."""
    why: str | None = None
    """Why it is refused."""

    @property
    def name(self) -> str:
        """Its name in the registry."""
        return self.source.name


class CachedDataset(msgspec.Struct, frozen=True):
    """A dataset and the states of its tasks."""

    dataset: RegistryDataset
    tasks: Sequence[DatasetTask]

    @property
    def digest(self) -> str | None:
        """Digest of the dataset; None unless all its tasks are here."""
        digests = [task.digest for task in self.tasks if task.digest and not task.why]
        return digest_dataset(digests) if len(digests) == len(self.dataset.tasks) else None

    def count(self, *states: TaskState) -> int:
        """Number of tasks in these states."""
        return sum(task.state in states for task in self.tasks)


def look_up(
    dataset: RegistryDataset, tasks: Sequence[RegistryTask], caches: Caches
) -> CachedDataset:
    """The states of some tasks of a dataset, without asking anyone."""
    found = [_look_up(dataset.dataset_id, task, caches) for task in tasks]
    return CachedDataset(dataset, found)


def fetch_dataset(
    dataset: RegistryDataset,
    tasks: Sequence[RegistryTask],
    caches: Caches,
    host: Mapping[str, str],
    fetching: Fetching,
    *,
    again: bool = False,
) -> CachedDataset:
    """Fetch tasks of a dataset that are not in the cache, or all of them `again`."""
    wanted = [_config(task, again=again) for task in tasks if task.git_url]
    got = fetch_git_tasks(wanted, caches, host, fetching)
    found = [
        _describe(dataset.dataset_id, task, got[git_key(_config(task))])
        if task.git_url
        else _look_up(dataset.dataset_id, task, caches)
        for task in tasks
    ]
    return CachedDataset(dataset, found)


def _config(task: RegistryTask, *, again: bool = False) -> TaskConfig:
    return TaskConfig(
        path=task.path, git_url=task.git_url, git_commit_id=task.git_commit_id, overwrite=again
    )


def _look_up(dataset_id: str, task: RegistryTask, caches: Caches) -> DatasetTask:
    if task.git_url is None:
        there = task.path.expanduser()
        if there.is_dir():
            return _describe(dataset_id, task, GitTask(there, ""), TaskState.LOCAL)
        return DatasetTask(source=task, state=TaskState.MISSING)
    if task.git_commit_id is None or not COMMIT.fullmatch(task.git_commit_id):
        return DatasetTask(source=task, state=TaskState.MOVING)
    cached = find_cached(_config(task), caches)
    if cached is None:
        return DatasetTask(source=task, state=TaskState.MISSING)
    return _describe(dataset_id, task, cached)


def _describe(
    dataset_id: str, task: RegistryTask, got: GitTask, state: TaskState = TaskState.CACHED
) -> DatasetTask:
    if got.directory is None:
        return DatasetTask(source=task, state=TaskState.REFUSED, why=got.why)
    digest = why = None
    try:
        check_as_fetched(got)
        digest = f"sha256:{lock_digest(got.directory)}"
        check_published(dataset_id, got.directory.name, digest)
    except TaskError as error:
        why = str(error)
    return DatasetTask(
        source=task,
        state=TaskState.REFUSED if why else state,
        directory=got.directory,
        digest=digest,
        why=why,
    )
