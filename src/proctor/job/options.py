"""Options and outcome of a job."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from proctor.errors import JobError
from proctor.harbor.configs import JobConfig
from proctor.harbor.stats import CANCELLED, Denominators, JobResult, TrialTable
from proctor.job.fetching import Report, say_nothing
from proctor.job.flakes import Flakes
from proctor.job.images import ImageFetching
from proctor.job.planned import RefusedTask
from proctor.job.settings import Settings
from proctor.task.directory import Task
from proctor.trial.executor import Executor
from proctor.trial.models import Models

INTERRUPTED = 130
"""Exit code of a job that was stopped by Ctrl-C."""


class LedgerOptions(msgspec.Struct, frozen=True):
    """The ledger that a job's trials are sealed into."""

    directory: Path
    """Absolute."""
    key_file: Path | None = None
    """The signing key; None: the user's default key."""
    extends: bool = False
    """Whether to allow trials that do not belong to the experiment."""


class ExecutorOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the executor of a job is opened with."""

    trials_dir: Path
    """Directory of the job's trials, as its config spells it."""
    config: JobConfig
    """Contains the values of secrets."""
    tasks: Sequence[Task]
    n_concurrent: int | None
    """Most trials at once; None: as many as fit."""
    host: Mapping[str, str]
    models: Models | None = None
    """The job's model gateway; None without one."""


type OpenExecutor = Callable[[ExecutorOrder], AbstractAsyncContextManager[Executor]]

MOST_LOST = 3
"""How often a trial is run again, by default, because the machine that ran it died."""


def exit_at_once() -> None:
    """Exit the process immediately; `resume` and `clean` handle what it leaves."""
    os._exit(INTERRUPTED)


def approve_all(_tasks: Sequence[Task], _config: JobConfig) -> None:
    """Approve any tasks."""


class ExecutionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the trials of a job are run, whether it is new or resumed."""

    also: frozenset[str] = frozenset({CANCELLED})
    """Exception types whose trials are run again if the job exists already."""
    is_auto: bool = False
    """-n auto: as many concurrent trials as fit, overriding the config."""
    host: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)
    """Environment variables of the host, for templates and secrets."""
    invocation: Sequence[str] = ()
    """The command line, for lock.json."""
    stop_at_once: Callable[[], None] = exit_at_once
    """Called on a second Ctrl-C; must not return."""
    approve: Callable[[Sequence[Task], JobConfig], None] = approve_all
    """Called with the tasks before anything is written; raises to refuse them."""
    open_executor: OpenExecutor | None = None
    """Opens what runs the trials, on other machines; None: this process."""
    max_lost: int = MOST_LOST
    """How often a trial is run again because the machine that ran it died."""
    report: Report = say_nothing
    """Called with messages about tasks that are fetched."""
    fetching: ImageFetching | None = None
    """How missing images are fetched; None: the base is used instead of them."""


class JobOptions(ExecutionOptions, frozen=True, kw_only=True):
    """Options of a job to run."""

    config: JobConfig
    """Contains the values of secrets, not their redacted form."""
    settings: Settings = msgspec.field(default_factory=Settings)
    environment_why: str = "the default"
    """Why the config names this kind of environment."""
    ledger: LedgerOptions | None = None
    """None: do not seal the trials."""
    known: frozenset[str] = frozenset()
    """Notes about the plan that the caller reports itself; they are only logged."""


class ResumeOptions(ExecutionOptions, frozen=True, kw_only=True):
    """Options of a job to resume."""

    n_concurrent: int | None = None
    """Number of concurrent trials; None: as configured in the job."""
    secrets: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Values for variables that are redacted in the job's files; others are sought in `host`."""
    ledger: Path | None = None
    """Absolute path of the ledger to seal into; None: the one the job was begun with."""
    key_file: Path | None = None
    """The signing key; None: the user's default key."""
    is_sealed: bool = True
    """False: do not seal the trials, even if the job was begun with a ledger."""


@dataclass(slots=True)
class SealedTrials:
    """How many of a job's trials were sealed in one run."""

    directory: Path
    """Directory of the ledger."""
    is_new_ledger: bool = False
    sealed: int = 0
    """Trials with complete records."""
    diagnostic: int = 0
    """Trials with partial records."""
    waiting: int = 0
    """Trials that wait for a server which could not be reached."""
    refused: list[str] = field(default_factory=list)
    """A sentence for each trial that was not sealed."""
    unrecorded: list[str] = field(default_factory=list)
    """Trials without a record, which cannot be sealed: harbor ran them."""


class Counts(Denominators, frozen=True, kw_only=True):
    """Trial counts of a job, including trials of earlier runs."""

    kept: int = 0
    """Trials whose result existed already."""
    retried: int = 0
    """Number of retries over the job's whole life."""

    @classmethod
    def of_job(cls, table: TrialTable, *, planned: int, kept: int, retried: int) -> Self:
        """Count these trials.

        Raises:
            JobError: the counts do not add up.
        """
        if table.n_trials > planned:
            raise JobError(
                f"{planned} trials were planned but {table.n_trials} are counted; "
                "this is a fault of proctor's"
            )
        counts = cls.of(table, planned=planned)
        return msgspec.structs.replace(counts, kept=kept, retried=retried)


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a job."""

    directory: Path
    result: JobResult
    """As result.json has it."""
    counts: Counts
    refused: Sequence[RefusedTask]
    """Tasks that are not counted anywhere."""
    unplanned: Sequence[str]
    """Trials in the directory that match no slot of the plan: kept, but not counted."""
    notes: Sequence[str]
    """Notes that a reader of the numbers should know."""
    interrupted: bool
    """Stopped by a signal; `resume` continues."""
    is_marked: bool = True
    """Whether verification was enabled, so that a trial without a reward is a problem."""
    sealed: SealedTrials | None = None
    """None if nothing was to be sealed."""
    flakes: Flakes | None = None
    """Agreement of repeated verifications; None if none were requested."""
    replay: Path | None = None
    """The trial or job whose recorded model answers were used; None if models were asked."""
    table: TrialTable = msgspec.field(default_factory=TrialTable)
    """The trials with a result, in plan order."""
