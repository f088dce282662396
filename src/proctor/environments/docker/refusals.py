"""What the docker environment cannot give, said before anything is built; and what it is told."""

from dataclasses import dataclass

from proctor.environments.sandbox.refusals import check_hardware, find_refusals
from proctor.errors import UnsupportedError
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.network import NetworkMode
from proctor.trial.order import EnvironmentOrder

_WHO = "the docker environment"


@dataclass(frozen=True, slots=True)
class RequestedSettings:
    """What a job says of all its containers."""

    network: str | None = None
    """Which of the engine's networks a public task gets; None: the usual one."""


def check_order(order: EnvironmentOrder) -> RequestedSettings:
    """What an order says of its container, once all of it was seen to be possible.

    Raises:
        UnsupportedError: it asks for what the docker environment does not have; names the field.
    """
    request = check_wishes(order.config)
    for refusal in find_refusals(order, _WHO):
        raise UnsupportedError(refusal)
    if order.network.mode is NetworkMode.ALLOWLIST:
        raise UnsupportedError(
            f"network_mode 'allowlist' ({', '.join(order.network.allowed_hosts)}): {_WHO} cannot "
            "hold a task to a list of hosts; use 'public' or 'no-network'"
        )
    return request


def check_wishes(config: EnvironmentConfig) -> RequestedSettings:
    """What a job says of all its containers, once it was seen to be possible.

    Raises:
        UnsupportedError: it asks for what none of them has, whatever the task; names the option.
    """
    check_hardware(config, _WHO)
    unknown = sorted(set(config.kwargs) - {"network"})
    if unknown:
        raise UnsupportedError(f"--ek {unknown[0]}: {_WHO} takes nothing but network")
    network = config.kwargs.get("network")
    if network is None:
        return RequestedSettings()
    if not isinstance(network, str) or not network:
        raise UnsupportedError(f"--ek network={network}: expected the name of a Docker network")
    if network == "none" or network.startswith("container:"):
        raise UnsupportedError(
            f"--ek network={network}: a task whose network_mode is public gets a network; name "
            "one, as `docker network ls` lists them"
        )
    return RequestedSettings(network)
