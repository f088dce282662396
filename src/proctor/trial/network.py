"""Which hosts may be reached in each phase of a trial, and what an environment must be able to do.

Pure: harbor's rules and messages. Nothing here opens or closes a connection.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from proctor.harbor.configs import AgentConfig, EnvironmentConfig
from proctor.task.config import StepConfig, TaskConfig
from proctor.task.network import NetworkMode, NetworkPolicy, PhaseNetwork


class CanNetwork(Protocol):
    """What an environment can do about its network."""

    @property
    def disable_internet(self) -> bool:
        """Cut it off."""
        ...

    @property
    def network_allowlist(self) -> bool:
        """Let only some hosts through."""
        ...

    @property
    def dynamic_network_policy(self) -> bool:
        """Change it after the start."""
        ...


class NetworkPlan(msgspec.Struct, frozen=True):
    """What holds when."""

    baseline: NetworkPolicy
    """Of the agent's environment, from its start."""
    agent: NetworkPolicy
    """While the agent runs."""
    separate_baseline: NetworkPolicy | None
    """Of a verifier's own environment; None where it shares the agent's."""
    verifier: NetworkPolicy
    """While the verifier runs."""

    @property
    def verifier_baseline(self) -> NetworkPolicy:
        """What the verifier's phase departs from."""
        return self.separate_baseline or self.baseline


def plan_network(
    task: TaskConfig,
    agent: AgentConfig,
    environment: EnvironmentConfig,
    step: StepConfig | None = None,
) -> NetworkPlan:
    """What holds in a trial, or in one of its steps."""
    extra = environment.extra_allowed_hosts
    baseline = _allow(task.environment.network_policy, extra)
    own = task.find_verifier_environment(step)
    separate = None
    if own is not None:
        # The job's further hosts are for the task's own environment and what is a copy of it.
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
    """Warnings, in harbor's words, for further hosts that a public network makes pointless."""
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
    """Refuse phases that an environment of this kind cannot give; `label` says whose they are.

    Raises:
        ValueError: in harbor's words.
    """
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
    """Refuse a policy that an environment of this kind cannot hold to.

    Raises:
        ValueError: in harbor's words.
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
