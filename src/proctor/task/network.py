"""Which hosts an environment or a phase may reach. Does not open connections."""

import re
from collections.abc import Iterable
from enum import StrEnum
from ipaddress import ip_network
from typing import Annotated, Self

import msgspec
from pydantic import AfterValidator, model_validator

from proctor.task.table import Table

# As in harbor, `$` also matches before a trailing newline.
_LABEL = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")


class NetworkMode(StrEnum):
    """How much of the network is reachable."""

    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"


class NetworkPolicy(msgspec.Struct, frozen=True):
    """The network policy of one environment or phase."""

    mode: NetworkMode
    allowed_hosts: tuple[str, ...] = ()
    """Host names in lower case; non-empty exactly when the mode is allowlist."""

    @property
    def network_mode(self) -> NetworkMode:
        """The mode, under the name that environments written for harbor use."""
        return self.mode


def parse_host(text: str) -> str:
    """Normalise a host name: lower case, no trailing dot.

    Raises:
        ValueError: it is not a host name.
    """
    host = text.strip().lower().rstrip(".")
    if not host:
        raise ValueError("an empty host; expected a host name")
    if host.startswith("*.") or _is_addresses(host):
        raise ValueError(
            f"{text!r}; expected a host name. Wildcards, IPv6 addresses and ranges of addresses "
            "are accepted by harbor 0.25, and by neither harbor 0.13.1 nor proctor"
        )
    if "/" in host or ":" in host:
        raise ValueError(f"{text!r}; expected a host name without scheme, port or path")
    if not all(_LABEL.match(label) for label in host.split(".")):
        raise ValueError(f"{text!r}; expected letters, digits and hyphens between dots")
    return host


def _is_addresses(host: str) -> bool:
    """Whether it is an IPv6 address, or a range of addresses such as 10.0.0.0/8."""
    if "/" not in host and ":" not in host:
        return False
    try:
        ip_network(host)
    except ValueError:
        return False
    return True


def parse_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """Normalise several host names."""
    return tuple(parse_host(host) for host in hosts)


type Hosts = Annotated[tuple[str, ...], AfterValidator(parse_hosts)]


def _check_policy(mode: NetworkMode | None, hosts: tuple[str, ...] | None) -> None:
    if mode is NetworkMode.ALLOWLIST:
        if not hosts:
            raise ValueError(
                "network_mode is 'allowlist', but allowed_hosts is empty, which only harbor 0.25 "
                "accepts"
            )
        return
    # As in harbor, an empty list is valid next to an explicit mode, but not without one.
    if hosts if mode else hosts is not None:
        raise ValueError("allowed_hosts requires network_mode 'allowlist'")


class PhaseNetwork(Table):
    """Network keys of [agent] and [verifier]; they override the environment's."""

    network_mode: NetworkMode | None = None
    """None: the environment's mode."""
    allowed_hosts: Hosts | None = None
    """Hosts reachable under 'allowlist'."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        _check_policy(self.network_mode, self.allowed_hosts)
        return self

    @property
    def network_policy(self) -> NetworkPolicy | None:
        """The policy of this phase; None: the environment's applies."""
        if self.network_mode is None:
            return None
        return NetworkPolicy(self.network_mode, self.allowed_hosts or ())


class EnvironmentNetwork(Table):
    """Network keys of an environment: the default for every phase."""

    network_mode: NetworkMode = NetworkMode.PUBLIC
    """How much of the network is reachable."""
    allowed_hosts: Hosts | None = None
    """Hosts reachable under 'allowlist'."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        _check_policy(self.network_mode, self.allowed_hosts)
        return self

    @property
    def network_policy(self) -> NetworkPolicy:
        """The policy of this environment."""
        return NetworkPolicy(self.network_mode, self.allowed_hosts or ())
