"""Decide which hosts may be reached in each phase, and check that an environment supports it.

harbor's rules and messages. Does not open or close connections.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Protocol, runtime_checkable

import msgspec

from proctor.harbor.configs import AgentConfig, EnvironmentConfig
from proctor.task.config import StepConfig, TaskConfig
from proctor.task.network import NetworkMode, NetworkPolicy, PhaseNetwork
from proctor.trial.environment import Environment, ModelReaching, Relaying
from proctor.trial.inside import kind_of


class CanNetwork(Protocol):
    """Network capabilities of an environment."""

    @property
    def disable_internet(self) -> bool:
        """Whether it can disable the network."""

    @property
    def network_allowlist(self) -> bool:
        """Whether it can restrict the network to some hosts."""

    @property
    def dynamic_network_policy(self) -> bool:
        """Whether it can change the policy after the start."""


class NetworkPlan(msgspec.Struct, frozen=True):
    """Network policies of a trial by phase."""

    baseline: NetworkPolicy
    """Policy of the agent's environment from its start."""
    agent: NetworkPolicy
    """While the agent runs."""
    separate_baseline: NetworkPolicy | None
    """Policy of a separate verifier environment; None if the verifier shares the agent's."""
    verifier: NetworkPolicy
    """While the verifier runs."""

    @property
    def verifier_baseline(self) -> NetworkPolicy:
        """The policy before and after the verifier's phase."""
        return self.separate_baseline or self.baseline


def plan_network(
    task: TaskConfig,
    agent: AgentConfig,
    environment: EnvironmentConfig,
    step: StepConfig | None = None,
) -> NetworkPlan:
    """Return the policies of a trial, or of one of its steps."""
    extra = environment.extra_allowed_hosts
    baseline = _allow(task.environment.network_policy, extra)
    own = task.find_verifier_environment(step)
    separate = None
    if own is not None:
        # The job's additional hosts apply to the task's environment and to copies of it.
        is_copy = own is task.environment
        separate = _allow(own.network_policy, extra) if is_copy else own.network_policy
    agent_policy = _phase(task.agent, step.agent if step else None) or baseline
    verifier = _phase(task.verifier, step.verifier if step else None) or separate or baseline
    return NetworkPlan(
        baseline=baseline,
        agent=_allow(agent_policy, agent.extra_allowed_hosts),
        separate_baseline=separate,
        verifier=verifier,
    )


def find_ignored_hosts(
    task: TaskConfig, agent: AgentConfig, environment: EnvironmentConfig
) -> Iterator[str]:
    """Yield harbor's warnings for additional hosts that a public network makes pointless."""
    plan = plan_network(task, agent, environment)
    for policy, hosts in (
        (task.environment.network_policy, environment.extra_allowed_hosts),
        (plan.agent, agent.extra_allowed_hosts),
    ):
        if hosts and policy.mode is NetworkMode.PUBLIC:
            yield (
                f"Run-specific allowlist host(s) {hosts!r} are ignored because the effective "
                "network policy is public."
            )


def check_network(plan: NetworkPlan, can: CanNetwork, kind: str, label: str) -> None:
    """Check that an environment of this kind supports the policies; `label` names their owner."""
    where = "agent environment"
    if plan.agent != plan.baseline:
        _check_switch(plan.agent, can, kind, (f"{label} agent phase", where))
    if plan.verifier == plan.verifier_baseline:
        return
    if plan.separate_baseline is not None:
        check_policy(plan.separate_baseline, can, kind)
        where = "separate verifier environment"
    _check_switch(plan.verifier, can, kind, (f"{label} verifier phase", where))


def _check_switch(policy: NetworkPolicy, can: CanNetwork, kind: str, said: tuple[str, str]) -> None:
    check_policy(policy, can, kind)
    if not can.dynamic_network_policy:
        phase, where = said
        raise ValueError(
            f"{phase} network policy differs from the {where} baseline, but this environment "
            "cannot change network policy after start."
        )


def check_policy(policy: NetworkPolicy, can: CanNetwork, kind: str) -> None:
    """Check that an environment of this kind supports a policy.

    Raises:
        ValueError: it does not; harbor's message.
    """
    refused = (policy.mode is NetworkMode.NO_NETWORK and not can.disable_internet) or (
        policy.mode is NetworkMode.ALLOWLIST and not can.network_allowlist
    )
    if refused:
        raise ValueError(
            f"network_mode='{policy.mode}' is not supported by {kind} environment. Environment "
            "providers must enforce the requested network policy or reject the task."
        )


def _phase(task: PhaseNetwork, step: PhaseNetwork | None) -> NetworkPolicy | None:
    own = step.network_policy if step else None
    return own or task.network_policy


def _allow(policy: NetworkPolicy, hosts: Sequence[str]) -> NetworkPolicy:
    if not hosts or policy.mode is NetworkMode.PUBLIC:
        return policy
    return NetworkPolicy(
        NetworkMode.ALLOWLIST, tuple(dict.fromkeys((*policy.allowed_hosts, *hosts)))
    )


@runtime_checkable
class Switchable(Protocol):
    """An environment whose network policy can be changed after the start."""

    async def set_network_policy(self, network_policy: NetworkPolicy) -> None:
        """Apply this policy from now on."""


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
