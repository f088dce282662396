"""Trials in this process, each in the directory in which its job keeps it.

A trial that is killed half-way leaves its files where `resume` finds them.
"""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from proctor.agents.kinds import make_agent
from proctor.environments.kinds import (
    check_environment,
    make_environment,
    needs_reaping,
    reap_for,
)
from proctor.harbor.configs import EnvironmentConfig
from proctor.sentence import reason_of
from proctor.trial.executor import TrialOutcome
from proctor.trial.order import Kinds
from proctor.trial.spec import TrialSpec
from proctor.trial.trial import run_trial
from proctor.trial.trial_run import Watch

_KINDS = Kinds(make_agent, make_environment)


class LocalExecutor:
    """See Executor."""

    def __init__(self, trials_dir: Path, capacity: int) -> None:
        """`trials_dir`: where the job keeps its trials, in the words of its config."""
        self._trials_dir = trials_dir
        self.capacity = capacity

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
            # The loop may have gone meanwhile: then nobody waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end, kept)

        # No thread of the loop's: it waits for those when it ends, also after Ctrl-C.
        threading.Thread(target=reap, name="reaping", daemon=True).start()
        return await reaped

    async def run(self, spec: TrialSpec, watch: Watch) -> TrialOutcome:
        """See Executor."""
        directory = self._trials_dir / spec.name
        return TrialOutcome(await run_trial(spec, directory, _KINDS, watch), directory)
