"""Which hosts may be reached, in an environment and in a phase. Nothing here opens a connection."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Self

import msgspec
from pydantic import AfterValidator, model_validator

from proctor.task.table import Table

# As in harbor, `$` also stands before a last newline.
_LABEL = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")


class NetworkMode(StrEnum):
    """How much of the network can be reached."""

    PUBLIC = "public"
    NO_NETWORK = "no-network"
    ALLOWLIST = "allowlist"


class NetworkPolicy(msgspec.Struct, frozen=True):
    """What holds for one environment or one phase."""

    mode: NetworkMode
    allowed_hosts: tuple[str, ...] = ()
    """Host names in lower case; there are some if and only if the mode is allowlist."""

    @property
    def network_mode(self) -> NetworkMode:
        """The mode under harbor's name for it, which environments written for harbor ask for."""
        return self.mode


def parse_host(text: str) -> str:
    """A host name as policies have it.

    Raises:
        ValueError: it is none.
    """
    host = text.strip().lower().rstrip(".")
    if not host:
        raise ValueError("an empty host; expected a host name")
    if "/" in host or ":" in host:
        raise ValueError(f"{text!r}; expected a host name without scheme, port or path")
    if not all(_LABEL.match(label) for label in host.split(".")):
        raise ValueError(f"{text!r}; expected letters, digits and hyphens between dots")
    return host


def parse_hosts(hosts: Iterable[str]) -> tuple[str, ...]:
    """Host names in lower case, without a last dot.

    Raises:
        ValueError: one is no host name.
    """
    return tuple(parse_host(host) for host in hosts)


type Hosts = Annotated[tuple[str, ...], AfterValidator(parse_hosts)]


def _check_policy(mode: NetworkMode | None, hosts: tuple[str, ...] | None) -> None:
    if mode is NetworkMode.ALLOWLIST:
        if not hosts:
            raise ValueError("network_mode is 'allowlist' and allowed_hosts names no host")
        return
    # An empty list goes with a mode, but not with none.
    if hosts if mode else hosts is not None:
        raise ValueError("allowed_hosts goes only with network_mode 'allowlist'")


class PhaseNetwork(Table):
    """Network keys of [agent] and [verifier]: they override the environment's while set."""

    network_mode: NetworkMode | None = None
    """Unset: as in the environment."""
    allowed_hosts: Hosts | None = None
    """Hosts that can be reached under 'allowlist'."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        _check_policy(self.network_mode, self.allowed_hosts)
        return self

    @property
    def network_policy(self) -> NetworkPolicy | None:
        """What this phase asks for; None where it asks for nothing of its own."""
        if self.network_mode is None:
            return None
        return NetworkPolicy(self.network_mode, self.allowed_hosts or ())


class EnvironmentNetwork(Table):
    """Network keys of an environment: what holds unless a phase says otherwise."""

    network_mode: NetworkMode = NetworkMode.PUBLIC
    """How much of the network can be reached."""
    allowed_hosts: Hosts | None = None
    """Hosts that can be reached under 'allowlist'."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        _check_policy(self.network_mode, self.allowed_hosts)
        return self

    @property
    def network_policy(self) -> NetworkPolicy:
        """What holds in this environment."""
        return NetworkPolicy(self.network_mode, self.allowed_hosts or ())
