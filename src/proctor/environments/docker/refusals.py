"""Rejects options that the docker environment does not support, before anything is built."""

from dataclasses import dataclass

from proctor.environments.docker.model_port import check_can_forward
from proctor.environments.docker.program import BRIDGE
from proctor.environments.sandbox.refusals import check_hardware, find_refusals
from proctor.errors import UnsupportedError
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.network import NetworkMode
from proctor.trial.environment import EnvironmentOrder

_WHO = "the docker environment"


@dataclass(frozen=True, slots=True)
class RequestedSettings:
    """Settings of a job for all its containers."""

    network: str | None = None
    """Network of public tasks; None: the default."""


def check_order(order: EnvironmentOrder) -> RequestedSettings:
    """Check the options of a trial; return its settings.

    Raises:
        UnsupportedError: one is not supported; the message names the field.
    """
    request = check_options(order.config)
    for refusal in find_refusals(order, _WHO):
        raise UnsupportedError(refusal)
    if order.network.mode is NetworkMode.ALLOWLIST:
        raise UnsupportedError(
            f"network_mode 'allowlist' ({', '.join(order.network.allowed_hosts)}): {_WHO} cannot "
            "restrict a task to a list of hosts; use 'public' or 'no-network'"
        )
    if order.model_port is not None:
        is_public = order.network.mode is NetworkMode.PUBLIC
        check_can_forward(request.network or BRIDGE if is_public else "none")
    return request


def check_reaches_models(config: EnvironmentConfig) -> None:
    """Check, before a job starts, that its containers can reach the model gateway."""
    # A task without a network needs root even if public ones use the host's: checked for each.
    check_can_forward(check_options(config).network or BRIDGE)


def check_options(config: EnvironmentConfig) -> RequestedSettings:
    """Check the options of a job; return its settings.

    Raises:
        UnsupportedError: one is not supported; the message names it.
    """
    check_hardware(config, _WHO)
    unknown = sorted(set(config.kwargs) - {"network"})
    if unknown:
        raise UnsupportedError(f"--ek {unknown[0]}: {_WHO} takes only network")
    network = config.kwargs.get("network")
    if network is None:
        return RequestedSettings()
    if not isinstance(network, str) or not network:
        raise UnsupportedError(f"--ek network={network}: expected the name of a Docker network")
    if network == "none" or network.startswith("container:"):
        raise UnsupportedError(
            f"--ek network={network}: a task whose network_mode is public needs a network; choose "
            "one of `docker network ls`"
        )
    return RequestedSettings(network)
