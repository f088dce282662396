"""Limits of a run: turns, tokens, money, time.

Limits are checked before each request to the model. Reaching one is not an error: the trial is
verified as usual. A limit that cannot be checked, because the endpoint reports no usage, is an
error.
"""

import msgspec

from proctor.agents.chat.accounting import Account
from proctor.agents.chat.settings import ChatSettings
from proctor.errors import AgentError


class Reached(msgspec.Struct, frozen=True):
    """A limit that was reached."""

    name: str
    """Name of the kwarg."""
    limit: float
    """Its value."""
    reached: float
    """What had been used when it was checked."""

    @property
    def sentence(self) -> str:
        """The limit and what was used, for a person."""
        return f"{self.name} reached: {self.reached:g} of {self.limit:g}"


def find_reached(settings: ChatSettings, account: Account, seconds: float) -> Reached | None:
    """Return the first limit that is reached after `seconds`, or None."""
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
    """Return the tokens or money used so far; None if there is no limit or no answer yet."""
    if limit is None or not account.charges:
        return None
    basis = account.basis
    used = account.tokens if name == "max_tokens" else basis.amount_usd
    if used is None:
        why = "the endpoint does not report the tokens of its answers"
        if name == "max_cost_usd":
            why = f"the model's cost is unknown: {basis.why_unknown}"
        raise AgentError(f"{name} is {limit:g} but cannot be checked: {why}; leave it out")
    return used
