"""The seam between a job and whatever runs its trials: this process now, other machines later.

`tests/executors` has the contract that every executor passes, and a second one that shares no
directory with the job.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from proctor.harbor.configs import EnvironmentConfig
from proctor.harbor.trial_result import TrialResult
from proctor.trial.spec import TrialSpec
from proctor.trial.trial_run import Watch


class TrialOutcome(msgspec.Struct, frozen=True):
    """What came of a trial."""

    result: TrialResult
    directory: Path
    """Everything that the trial left. It is handed over: the job moves it to its own place, unless
    it lies there already."""


class Executor(Protocol):
    """Runs the trials of a job. What they are, and which of them run again, the job decides."""

    @property
    def capacity(self) -> int:
        """How many trials it runs at once."""
        ...

    async def check(self, environment: EnvironmentConfig) -> None:
        """See that trials can run in such environments, before anything is created.

        Raises:
            InputError: they cannot.
        """

    async def reap(self, environment: EnvironmentConfig) -> Sequence[str]:
        """Remove what killed runs left; what those environments held goes to their trials.

        Returns sentences about what had to stay.
        """
        ...

    async def run(self, spec: TrialSpec, watch: Watch) -> TrialOutcome:
        """Run a trial; `watch` is called with the name of each phase as it begins.

        A trial that fails is an outcome like any other. So is one that is cancelled, together with
        the task that waits for it: it is stopped, its result says CancelledError, and what it left
        is handed over; the caller sees by `Task.cancelling` that it was meant too.

        Raises:
            CancelledError: it was cancelled, and nothing can be handed over.
            Exception: the trial could not write its files, or they could not be brought here.
        """
        ...
