"""Interface between a trial and the job's model gateway, which `proctor.gateway` implements.

The gateway is the only way from an environment to a model. A trial opens one account for its agent
and one for its verifier; each has a token that works only while it is open.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from proctor.errors import JobError
from proctor.harbor.configs import AgentConfig
from proctor.harbor.documents import DETAILS
from proctor.record.cost import CostBasis, Usage

MODEL_CALLS = "model-calls.jsonl"
"""Every exchange with a model, beside the agent's logs on the host."""
REPLAY_KEY = "model_replay"
"""Key of an agent's metadata with its ReplayUse."""
VERIFIER_MODELS = "verifier-models"
"""Directory in a trial for the exchanges of its tests."""


class ReplayUse(msgspec.Struct, frozen=True, kw_only=True):
    """How the requests of an account were answered from a recording."""

    source: str
    """The recorded trial."""
    on_difference: str
    """stop, live or position."""
    n_recorded: int
    """Requests to models in the recording."""
    n_asked: int
    """Requests to models since the account was last opened."""
    n_replayed: int
    """Those answered from the recording."""
    difference: str | None = None
    """A sentence about the first request that differs."""
    is_stopped: bool = False
    """Whether the trial ends because of it."""
    unasked: str | None = None
    """A sentence about recorded requests that were not repeated so far."""


class ModelUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one account was used for."""

    n_requests: int = 0
    """Requests that a provider answered, or failed to answer."""
    usage: Usage = Usage()
    """Tokens, by the provider's own counts; unknown where it reported none."""
    models: tuple[str, ...] = ()
    """Models that answered, in order."""
    basis: CostBasis | None = None
    """What it cost; None if nothing was answered."""
    limit: str | None = None
    """A sentence about the limit that ended it; None if none was reached."""
    outage: str | None = None
    """A sentence about the provider's failure, if the last request ended with one."""
    replay: ReplayUse | None = None
    """None if its answers are not from a recording."""


class ModelAccount(Protocol):
    """Lets the agent or the verifier of one trial reach models."""

    @property
    def env(self) -> Mapping[str, str]:
        """Variables for programs that may use it: base URLs, and the token in place of keys.

        Credentials of the host that must not reach an environment have empty values.
        """

    @property
    def config(self) -> AgentConfig | None:
        """The agent's config with the gateway in place of its endpoint; None for a verifier."""

    def describe(self, url: str) -> str:
        """Return the provider's address behind a base URL of the gateway; other URLs unchanged."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Accept requests with its token inside the context; end them when it is left."""

    def summarize(self) -> ModelUse:
        """Return what it was used for since it was last opened."""


class Models(Protocol):
    """The gateway of a job."""

    @property
    def port(self) -> int | None:
        """Its port on the host's loopback address; the same one is used inside environments.

        None if no program inside an environment uses it.
        """

    def open_agent(
        self,
        trial: str,
        directory: str,
        config: AgentConfig,
        env: Mapping[str, str],
        replay: Sequence[str] = (),
    ) -> ModelAccount | None:
        """Open the account of a trial's agent, with its resolved variables.

        None if the agent reaches no model, or only by itself. Files go to this directory. With the
        recorded exchanges of a trial in `replay`, these answer its requests.
        """

    def open_verifier(
        self, trial: str, directory: str, env: Mapping[str, str]
    ) -> ModelAccount | None:
        """Open the account of a trial's tests; None if their variables name no provider."""


def load_replay_uses(path: str) -> list[ReplayUse]:
    """Load how requests were answered, one for each step; empty if models were asked."""
    try:
        result = DETAILS.load(path)
        reports = [result.agent_result, *(step.agent_result for step in result.step_results or ())]
        found = [(report.metadata or {}).get(REPLAY_KEY) for report in reports if report]
        return [msgspec.convert(each, ReplayUse) for each in found if each is not None]
    except (JobError, msgspec.ValidationError):
        return []


def find_first_difference(uses: list[ReplayUse]) -> str | None:
    """Return a sentence about the first request that differs, or that was not repeated."""
    differences = (use.difference for use in uses)
    return next(filter(None, differences), uses[-1].unasked if uses else None)
