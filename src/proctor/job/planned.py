"""Tasks and shared inputs of a job before it runs, and the tasks it refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from proctor.harbor.configs import TaskConfig
from proctor.harbor.declared import DeclaredMetric
from proctor.harbor.skills import Skill
from proctor.job.settings import Settings
from proctor.task.digests import TaskDigests
from proctor.task.directory import Task

type TaskKind = Literal["local", "git", "package"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """A task that a job will run."""

    config: TaskConfig
    """Its source, as in the job's files."""
    directory: Path
    """Its absolute directory, links resolved."""
    task: Task
    """Includes extra instructions. Identical directories share it."""
    digests: TaskDigests
    """Identical directories share them."""
    commit: str | None = None
    """The resolved commit of a task from a git repository."""
    package: str | None = None
    """The digest of a task's package, `sha256:…`."""
    dataset_id: str | None = None
    """`name@version` of its dataset; None if that has no version."""

    @property
    def kind(self) -> TaskKind:
        """Kind of its source."""
        if self.config.name is not None:
            return "package"
        return "git" if self.config.git_url is not None else "local"

    @property
    def name(self) -> str:
        """Its name in harbor before it is read: `org/name` of a package, else its directory."""
        if self.config.name is not None:
            return self.config.name
        if self.config.git_url is not None and self.config.path is not None:
            return self.config.path.name or self.directory.name
        return self.directory.name

    @property
    def lock_digest(self) -> str:
        """Its digest in lock.json."""
        return self.package or f"sha256:{self.digests.lock_digest}"


class RefusedTask(msgspec.Struct, frozen=True):
    """A requested task that cannot be run."""

    name: str
    path: Path
    """Its directory, or where it was expected."""
    reason: str
    """A sentence."""


class PinnedFile(msgspec.Struct, frozen=True):
    """A file that every trial of a job reads."""

    path: Path
    """As it was given."""
    digest: str
    """`sha256:…`."""


class DatasetMetrics(msgspec.Struct, frozen=True):
    """The metrics of a dataset, which come before the job's own."""

    source: str
    """Name of the dataset."""
    metrics: tuple[DeclaredMetric, ...] = ()


class PinnedDataset(msgspec.Struct, frozen=True):
    """A dataset of a job, and what pins the tasks of it that the job has."""

    id: str
    """`name@version`."""
    digest: str
    """Digest of the digests of these tasks; of all of them, that of the dataset."""
    n_tasks: int
    """Tasks of it that the job has."""
    n_listed: int
    """Tasks that it has."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a job is planned from."""

    tasks: tuple[PlannedTask, ...]
    refused: tuple[RefusedTask, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes about the tasks, each once."""
    datasets: tuple[DatasetMetrics, ...] = ()
    """One for each dataset of the job, in order."""
    pinned_datasets: tuple[PinnedDataset, ...] = ()
    """Those that have a version."""
    extra_instructions: tuple[PinnedFile, ...] = ()
    compose_files: tuple[PinnedFile, ...] = ()
    skills: Mapping[tuple[Path, ...], tuple[Skill, ...]] = msgspec.field(default_factory=dict)
    """By the paths given to an agent."""
    settings: Settings = msgspec.field(default_factory=Settings)
