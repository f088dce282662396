"""Run trials in this process, each in its final directory in the job.

A killed trial leaves its files where `resume` finds them.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from proctor.agents.kinds import make_agent
from proctor.environments.kinds import (
    check_environment,
    make_environment,
    needs_reaping,
    reap_for,
)
from proctor.harbor.configs import EnvironmentConfig
from proctor.job.options import ExecutorOrder
from proctor.sentence import reason_of
from proctor.trial.agent import Kinds
from proctor.trial.executor import TrialOutcome
from proctor.trial.spec import TrialSpec
from proctor.trial.trial import run_trial
from proctor.trial.trial_run import Watch

KINDS = Kinds(make_agent, make_environment)
"""Those of this package, without a model gateway."""


class LocalExecutor:
    """Runs trials in this process; see Executor."""

    def __init__(self, trials_dir: Path, capacity: int, kinds: Kinds = KINDS) -> None:
        """`trials_dir`: directory of the job's trials, as its config spells it."""
        self._trials_dir = trials_dir
        self.capacity = capacity
        self._kinds = kinds

    async def check(self, environment: EnvironmentConfig) -> None:
        """See Executor."""
        await check_environment(environment)

    async def reap(self, environment: EnvironmentConfig) -> Sequence[str]:
        """See Executor."""
        if not needs_reaping(environment):
            return ()
        loop = asyncio.get_running_loop()
        reaped: asyncio.Future[Sequence[str]] = loop.create_future()

        def end(kept: Sequence[str]) -> None:
            if not reaped.done():
                reaped.set_result(kept)

        def reap() -> None:
            try:
                kept: Sequence[str] = reap_for(environment).kept
            except OSError as error:
                kept = [f"what killed runs left could not be removed: {reason_of(error)}"]
            # The loop may be closed by now; then nothing waits for the result.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end, kept)

        # Not in the loop's thread pool: the loop waits for its threads when it ends, even after
        # Ctrl-C.
        threading.Thread(target=reap, name="reaping", daemon=True).start()
        return await reaped

    async def run(self, spec: TrialSpec, watch: Watch) -> TrialOutcome:
        """See Executor."""
        directory = self._trials_dir / spec.name
        return TrialOutcome(await run_trial(spec, directory, self._kinds, watch), directory)


@asynccontextmanager
async def open_local(order: ExecutorOrder) -> AsyncIterator[LocalExecutor]:
    """Run the trials of a job in this process; see OpenExecutor."""
    kinds = replace(KINDS, models=order.models)
    yield LocalExecutor(order.trials_dir, order.n_concurrent or 1, kinds)
