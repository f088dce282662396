"""Switch the network policy for the duration of a phase."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol, runtime_checkable

from proctor.task.network import NetworkPolicy
from proctor.trial.environment import Environment, ModelReaching, Relaying
from proctor.trial.inside import kind_of


@runtime_checkable
class Switchable(Protocol):
    """An environment whose network policy can be changed after the start."""

    async def set_network_policy(self, network_policy: NetworkPolicy) -> None:
        """Apply this policy from now on."""
        ...


def host_ports_open(environment: Environment) -> AbstractAsyncContextManager[None]:
    """Open the job's host ports inside the context, for the agent only."""
    if not isinstance(environment, Relaying):
        return nullcontext()
    return _opened(environment.open_host_ports, environment.close_host_ports)


def model_port_open(environment: Environment) -> AbstractAsyncContextManager[None]:
    """Let programs inside reach the job's model gateway inside the context, if there is one."""
    if not isinstance(environment, ModelReaching):
        return nullcontext()
    return _opened(environment.open_model_port, environment.close_model_port)


@asynccontextmanager
async def _opened(
    open_ports: Callable[[], Awaitable[None]], close_ports: Callable[[], Awaitable[None]]
) -> AsyncIterator[None]:
    await open_ports()
    try:
        yield
    finally:
        await close_ports()


@asynccontextmanager
async def network_of_phase(
    environment: Environment, baseline: NetworkPolicy, phase: NetworkPolicy
) -> AsyncIterator[None]:
    """Apply a phase's policy inside the context, then restore the baseline.

    Raises:
        ValueError: the policies differ, and the environment cannot switch.
    """
    if phase == baseline:
        yield
        return
    if not isinstance(environment, Switchable):
        kind = kind_of(environment)
        message = f"{kind} environment cannot change network policy after start."
        raise ValueError(message)  # noqa: TRY004 - harbor's class
    await environment.set_network_policy(phase)
    try:
        yield
    finally:
        await environment.set_network_policy(baseline)
