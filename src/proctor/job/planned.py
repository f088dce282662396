"""What a job consists of before it runs, as values: tasks, what was refused, what is shared."""

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
    """Where it is from, as the job's files say it."""
    directory: Path
    """Where it is: absolute, without links."""
    task: Task
    """With extra instructions joined to its own. Equal directories share it."""
    digests: TaskDigests
    """Equal directories share them."""
    commit: str | None = None
    """The commit that was found, of a task of a git repository."""
    package: str | None = None
    """The digest of a task's package, `sha256:…`."""
    dataset_id: str | None = None
    """`name@version` of the dataset that names it; None where that has no version."""

    @property
    def kind(self) -> TaskKind:
        """What it is from."""
        if self.config.name is not None:
            return "package"
        return "git" if self.config.git_url is not None else "local"

    @property
    def name(self) -> str:
        """What harbor calls it before it is read: `org/name` of a package, else its directory."""
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
    """A task that was asked for and cannot be run."""

    name: str
    path: Path
    """Where it is, or where it was looked for."""
    reason: str
    """A sentence."""


class PinnedFile(msgspec.Struct, frozen=True):
    """A file that every trial of a job reads."""

    path: Path
    """As it was given."""
    digest: str
    """`sha256:…`."""


class DatasetMetrics(msgspec.Struct, frozen=True):
    """The metrics that a dataset brings, before the job's own."""

    source: str
    """Name of the dataset."""
    metrics: tuple[DeclaredMetric, ...] = ()


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a job is planned from."""

    tasks: tuple[PlannedTask, ...]
    refused: tuple[RefusedTask, ...] = ()
    notes: tuple[str, ...] = ()
    """What is worth knowing of the tasks, each once."""
    datasets: tuple[DatasetMetrics, ...] = ()
    """One for each dataset of the job, in order."""
    extra_instructions: tuple[PinnedFile, ...] = ()
    compose_files: tuple[PinnedFile, ...] = ()
    skills: Mapping[tuple[Path, ...], tuple[Skill, ...]] = msgspec.field(default_factory=dict)
    """By the paths that an agent was given."""
    settings: Settings = msgspec.field(default_factory=Settings)
