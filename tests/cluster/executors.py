"""The Ray executor as the contract's tests use it: each of them has an event loop of its own."""

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from proctor.cluster.executor import RayExecutor
from proctor.harbor.configs import EnvironmentConfig, JobConfig
from proctor.job.options import ExecutorOrder
from proctor.trial.executor import TrialOutcome
from proctor.trial.spec import TrialSpec
from proctor.trial.trial_run import Watch


class ConnectedExecutor:
    """See Executor. The process is connected to a cluster."""

    def __init__(self, trials_dir: Path, capacity: int) -> None:
        self._trials_dir = trials_dir
        self.capacity = capacity
        self._n_users = 0
        self._executor: RayExecutor | None = None
        self._stack = contextlib.AsyncExitStack()

    async def check(self, environment: EnvironmentConfig) -> None:
        async with self._opened() as executor:
            await executor.check(environment)

    async def reap(self, environment: EnvironmentConfig) -> Sequence[str]:
        async with self._opened() as executor:
            return await executor.reap(environment)

    async def run(self, spec: TrialSpec, watch: Watch) -> TrialOutcome:
        async with self._opened() as executor:
            return await executor.run(spec, watch)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[RayExecutor]:
        if self._executor is None:
            order = ExecutorOrder(
                trials_dir=self._trials_dir,
                config=JobConfig(job_name="job"),
                tasks=(),
                n_concurrent=self.capacity,
                host=os.environ,
            )
            self._executor = RayExecutor(order)
            await self._stack.enter_async_context(self._executor.receiving())
        self._n_users += 1
        try:
            yield self._executor
        finally:
            self._n_users -= 1
            if self._n_users == 0:
                self._executor = None
                await self._stack.aclose()
