"""Interface between a job and what runs its trials: this process, or other machines.

`tests/executors` has the contract that every executor passes, and a second executor that shares no
directory with the job.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from proctor.harbor.configs import EnvironmentConfig
from proctor.harbor.trial_result import TrialResult
from proctor.trial.spec import TrialSpec
from proctor.trial.trial_run import Watch


class TrialOutcome(msgspec.Struct, frozen=True):
    """Result of a trial, and its files."""

    result: TrialResult
    directory: Path
    """Everything that the trial left. The job takes ownership and moves it to its place, unless it
    is there already.
    """
    is_lost: bool = False
    """Whether the machine that ran it died. Only an executor knows: an agent could raise an
    exception of any name."""


def is_cancelled() -> bool:
    """Whether the current task itself is cancelled, rather than something inside the trial."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Executor(Protocol):
    """Runs the trials of a job. The job decides what they are and which are retried."""

    @property
    def capacity(self) -> int:
        """How many trials it runs at once."""

    async def check(self, environment: EnvironmentConfig) -> None:
        """Check that trials can run in such environments, before anything is created.

        Raises:
            InputError: they cannot.
        """

    async def reap(self, environment: EnvironmentConfig) -> Sequence[str]:
        """Remove environments left by killed runs; their files go to their trials.

        Returns sentences about what could not be removed.
        """

    async def run(self, spec: TrialSpec, watch: Watch) -> TrialOutcome:
        """Run a trial; `watch` is called with the name of each phase as it begins.

        A failed trial also returns an outcome. So does a cancelled one, even if the awaiting task
        is cancelled with it: it is stopped, its result says CancelledError, and its files are
        returned. The caller checks `is_cancelled` to see whether it was cancelled itself.

        Raises:
            CancelledError: it was cancelled, and there are no files to return.
            Exception: the trial could not write its files, or they could not be transferred.
        """
