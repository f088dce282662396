"""What ends a run before the model does: turns, tokens, money, time.

Limits are looked at before each question to the model. A limit is no error: what the agent left is
verified. One that cannot be watched, because the endpoint does not say what it takes, is an error.
"""

import msgspec

from proctor.agents.chat.accounting import Account
from proctor.agents.chat.settings import ChatSettings
from proctor.errors import AgentError


class Reached(msgspec.Struct, frozen=True):
    """A limit that was reached."""

    name: str
    """The kwarg."""
    limit: float
    """Its value."""
    reached: float
    """What had been used by then."""

    @property
    def sentence(self) -> str:
        """For a person."""
        return f"{self.name} is reached: {self.reached:g} of {self.limit:g}"


def find_reached(settings: ChatSettings, account: Account, seconds: float) -> Reached | None:
    """The first limit that is reached after so many seconds, or None.

    Raises:
        AgentError: one cannot be watched.
    """
    used: dict[str, float | None] = {
        "max_turns": account.n_turns,
        "max_tokens": _watched("max_tokens", settings.max_tokens, account),
        "max_cost_usd": _watched("max_cost_usd", settings.max_cost_usd, account),
        "max_seconds": seconds,
    }
    for name, reached in used.items():
        limit: float | None = getattr(settings, name)
        if limit is not None and reached is not None and reached >= limit:
            return Reached(name, limit, reached)
    return None


def _watched(name: str, limit: float | None, account: Account) -> float | None:
    """What counts against a limit of tokens or money."""
    if limit is None or not account.charges:
        return None
    basis = account.basis
    used = account.tokens if name == "max_tokens" else basis.amount_usd
    if used is None:
        why = "the endpoint does not say how many tokens an answer took"
        if name == "max_cost_usd":
            why = f"what the model costs is not known: {basis.why_unknown}"
        raise AgentError(f"{name} is {limit:g} and cannot be watched: {why}; leave it out")
    return used
