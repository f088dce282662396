"""Switch the network policy for the duration of a phase."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

from proctor.task.network import NetworkPolicy
from proctor.trial.environment import Environment, can_reach_models, can_relay
from proctor.trial.inside import kind_of


@runtime_checkable
class Switchable(Protocol):
    """An environment whose network policy can be changed after the start."""

    async def set_network_policy(self, network_policy: NetworkPolicy) -> None:
        """Apply this policy from now on."""
        ...


@asynccontextmanager
async def host_ports_open(environment: Environment) -> AsyncIterator[None]:
    """Open the job's host ports inside the context, for the agent only.

    Raises:
        Exception: the environment cannot open them.
    """
    if not can_relay(environment):
        yield
        return
    await environment.open_host_ports()
    try:
        yield
    finally:
        await environment.close_host_ports()


@asynccontextmanager
async def model_port_open(environment: Environment) -> AsyncIterator[None]:
    """Let programs inside reach the job's model gateway inside the context, if there is one.

    Raises:
        Exception: the environment does not run.
    """
    if not can_reach_models(environment):
        yield
        return
    await environment.open_model_port()
    try:
        yield
    finally:
        await environment.close_model_port()


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
