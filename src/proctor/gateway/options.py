"""What the gateway of a job is run with, and which agents it serves. Starts nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from proctor.errors import AgentError
from proctor.gateway.budget import NO_LIMITS, Limits
from proctor.gateway.upstream import (
    OPTION,
    PROVIDERS,
    Upstream,
    find_refused,
    find_upstreams,
)
from proctor.harbor.agents import ALL_AGENTS, CHAT
from proctor.harbor.configs import AgentConfig

COMMAND: Final = "command"
# The kwarg of an agent on the host that names its endpoint; the gateway takes its place.
_URL_KWARGS: Final = {CHAT: "base_url", "terminus-2": "api_base"}


class OnDifference(StrEnum):
    """What happens at a request that no recorded exchange answers."""

    STOP = "stop"
    """It is refused, and the trial ends."""
    LIVE = "live"
    """It, and all that follow, are sent to the provider."""
    POSITION = "position"
    """It gets the answer of the next recorded exchange, and the difference is recorded."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """What the gateway of a job is run with."""

    host: Mapping[str, str] = field(repr=False)
    """The host's variables."""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """URLs by provider, from --model-endpoint."""
    trial_limits: Limits = NO_LIMITS
    job_limits: Limits = NO_LIMITS
    is_inside: bool = True
    """Whether programs inside environments use it; agents on the host need no way in."""
    on_difference: OnDifference = OnDifference.STOP
    """What happens at a request that a replayed recording does not answer."""

    def find_upstreams(
        self,
        config: AgentConfig,
        env: Mapping[str, str],
        recorded: Mapping[str, str] | None = None,
    ) -> dict[str, Upstream]:
        """Return the providers that an agent reaches through the gateway; empty: none.

        `recorded`: the base URLs of a recording that answers in their place, by provider. They
        need no key.

        Raises:
            AgentError: an address, a key or a scheme cannot be used.
        """
        name = config.name or ""
        if name not in (COMMAND, CHAT) and name not in ALL_AGENTS:
            return {}
        if not config.model_name and not self.endpoints and not recorded:
            return {}
        provider, slash, _ = (config.model_name or "").partition("/")
        if name in ALL_AGENTS and slash and provider not in PROVIDERS:
            # Its key could not be replaced by a token.
            return {}
        given = dict(self.endpoints)
        url = config.kwargs.get(_URL_KWARGS.get(name, ""))
        if isinstance(url, str):
            given["openai" if name == CHAT else provider] = url
        found = find_upstreams(given, env, self.host)
        if recorded is not None:
            found = self._add_recorded(found, recorded)
        if found and (sentence := find_refused(env)):
            raise AgentError(sentence)
        return found

    def _add_recorded(
        self, found: Mapping[str, Upstream], recorded: Mapping[str, str]
    ) -> dict[str, Upstream]:
        known = {name: url for name, url in recorded.items() if name in PROVIDERS}
        if self.on_difference is not OnDifference.LIVE:
            # Nothing is sent: the agent finds the variables that it had, and no key is needed.
            here = {name: replace(upstream, key=None) for name, upstream in found.items()}
            return {**here, **find_upstreams(known, {}, {})}
        if missing := [name for name in known if name not in found]:
            key = PROVIDERS[missing[0]].keys[0]
            raise AgentError(
                f"--on-difference live may have to ask {missing[0]}, for which there is no key: "
                f"set {key}, or pass {OPTION} {missing[0]}=URL"
            )
        return dict(found)

    def find_verifier_upstreams(self, env: Mapping[str, str]) -> dict[str, Upstream]:
        """Return the providers that tests with these variables reach; empty: none."""
        # Only what its own variables name: tests that need no model get no token.
        found = find_upstreams({}, env, {})
        return {name: each for name, each in found.items() if each.key}


def runs_on_host(config: AgentConfig) -> bool:
    """Whether an agent asks its model from the host."""
    return config.name in _URL_KWARGS


def point_at_gateway(config: AgentConfig, url: str | None) -> AgentConfig:
    """Return the config of an agent on the host with the gateway's URL in place of its own."""
    name = config.name or ""
    kwarg = _URL_KWARGS.get(name)
    if kwarg is None:
        return config
    kwargs = {key: value for key, value in config.kwargs.items() if key != kwarg}
    # chat finds its URL and its key among its variables.
    if name != CHAT and url is not None:
        kwargs[kwarg] = url
    return config.model_copy(update={"kwargs": kwargs})
