"""What a job is told, and what comes of it, as values."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from proctor.errors import JobError
from proctor.harbor.configs import JobConfig
from proctor.harbor.stats import CANCELLED, JobResult, TrialTable
from proctor.job.flakes import Flakes
from proctor.job.planned import RefusedTask
from proctor.job.settings import Settings
from proctor.task.directory import Task

INTERRUPTED = 130
"""Exit code of a job that was stopped by Ctrl-C."""


class LedgerOptions(msgspec.Struct, frozen=True):
    """The ledger that a job's trials are sealed into."""

    directory: Path
    """Absolute."""
    key_file: Path | None = None
    """The signing key; None: the user's own."""
    extends: bool = False
    """Whether trials may be added to an experiment that they do not belong to."""


def exit_at_once() -> None:
    """End the process without another word; what it left is for `resume` and `clean`."""
    os._exit(INTERRUPTED)


def approve_all(_tasks: Sequence[Task], _config: JobConfig) -> None:
    """Let any tasks be run."""


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is to be run."""

    config: JobConfig
    """With the values of secrets, not their written form."""
    settings: Settings = msgspec.field(default_factory=Settings)
    invocation: Sequence[str] = ()
    """The command line, for lock.json."""
    host: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)
    """The host's variables, for templates."""
    is_auto: bool = False
    """-n auto: as many trials at once as fit, whatever the config says."""
    environment_why: str = "the default"
    """Why the config names this kind of environment."""
    also: frozenset[str] = frozenset({CANCELLED})
    """Exception types that are run again where the job is there already."""
    stop_at_once: Callable[[], None] = exit_at_once
    """What a second Ctrl-C does; it must not return to the job."""
    approve: Callable[[Sequence[Task], JobConfig], None] = approve_all
    """Called with the tasks before anything is created; raises where they are not to be run."""
    ledger: LedgerOptions | None = None
    """None: the trials are not sealed."""


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is to be gone on with."""

    also: frozenset[str] = frozenset({CANCELLED})
    """Exception types that are run again."""
    n_concurrent: int | None = None
    """Trials at once; None: as the job was told."""
    is_auto: bool = False
    """-n auto."""
    secrets: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Values for variables that the job's files have only redacted."""
    host: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)
    """The host's variables, for templates and for secrets that were not given."""
    invocation: Sequence[str] = ()
    """The command line, for a lock.json that has to be written anew."""
    stop_at_once: Callable[[], None] = exit_at_once
    """What a second Ctrl-C does; it must not return to the job."""
    approve: Callable[[Sequence[Task], JobConfig], None] = approve_all
    """Called with the tasks before anything is written; raises where they are not to be run."""
    ledger: Path | None = None
    """Where to seal, absolute; None: into the ledger that the job was begun with."""
    key_file: Path | None = None
    """The signing key; None: the user's own."""
    is_sealed: bool = True
    """False: the trials are not sealed, whatever the job was begun with."""


@dataclass(slots=True)
class SealedTrials:
    """What became of a job's trials in the ledger, in one run."""

    directory: Path
    """The ledger's."""
    is_new_ledger: bool = False
    sealed: int = 0
    """Complete records."""
    diagnostic: int = 0
    """Partial ones."""
    refused: list[str] = field(default_factory=list)
    """A sentence for each that was not sealed."""
    unrecorded: list[str] = field(default_factory=list)
    """Trials that are not sealed since there is no record of them: harbor ran them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a job's numbers rest on: planned = run + not_run; run = scored + zero_by_missing."""

    planned: int
    """Slots of the plan."""
    run: int
    """Trials that have a result, those of earlier runs included."""
    scored: int
    """Trials with a reward."""
    errored: int
    """Trials with an exception; some of them have a reward all the same."""
    zero_by_missing: int
    """Trials without a reward, which harbor counts as 0."""
    not_run: int
    """Slots without a result."""
    kept: int
    """Trials whose result was there already."""
    retried: int
    """How often a failed trial was begun again, over the job's whole life."""

    @classmethod
    def of(cls, table: TrialTable, *, planned: int, kept: int, retried: int) -> Self:
        """The counts of these trials.

        Raises:
            JobError: they do not add up.
        """
        scored = sum(group.n_rewarded for group in table.groups.values())
        if table.n_trials > planned:
            raise JobError(
                f"{planned} trials were planned but {table.n_trials} are counted; "
                "this is a fault of proctor's"
            )
        return cls(
            planned=planned,
            run=table.n_trials,
            scored=scored,
            errored=sum(group.n_errored for group in table.groups.values()),
            zero_by_missing=table.n_trials - scored,
            not_run=planned - table.n_trials,
            kept=kept,
            retried=retried,
        )


class JobOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a job."""

    directory: Path
    result: JobResult
    """As result.json has it."""
    counts: Counts
    refused: Sequence[RefusedTask]
    """Tasks that are in no number."""
    unplanned: Sequence[str]
    """Trials of the directory that the plan has no slot for any more: kept, in no number."""
    notes: Sequence[str]
    """What a reader of the numbers should know, in sentences."""
    interrupted: bool
    """Stopped by a signal; `resume` goes on."""
    is_marked: bool = True
    """Verification was not switched off, so that a trial without a reward is one too few."""
    sealed: SealedTrials | None = None
    """None where nothing was to be sealed."""
    flakes: Flakes | None = None
    """How far further verifications agree; None where none were asked for."""
    table: TrialTable = msgspec.field(default_factory=TrialTable)
    """The trials that have a result, in the order of the plan."""
