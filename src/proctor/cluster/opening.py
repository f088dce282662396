"""Opens the executor of a job on a cluster."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import ray

from proctor.cluster.connection import connect, disconnect, find_address
from proctor.cluster.executor import RayExecutor
from proctor.job.options import ExecutorOrder


@dataclass(frozen=True, slots=True)
class OnCluster:
    """Runs the trials of a job on a cluster; see OpenExecutor."""

    on: str
    """`ray`, or an address."""
    is_insecure: bool = False

    @contextlib.asynccontextmanager
    async def __call__(self, order: ExecutorOrder) -> AsyncIterator[RayExecutor]:
        """Connect, and yield the executor."""
        address = find_address(self.on, order.host)
        was_connected = ray.is_initialized()
        # Not in a thread: Ray wants the main one.
        connect(address, is_insecure=self.is_insecure)
        try:
            executor = RayExecutor(order, is_insecure=self.is_insecure)
            async with executor.receiving():
                yield executor
        finally:
            if not was_connected:
                await asyncio.to_thread(disconnect)
