"""Limits on what a trial or a job may spend on models, checked before each request.

A request reserves what it will surely cost, its input, until its answer says what it did cost. So
the requests in flight are the most by which a limit is exceeded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from proctor.sentence import render_money

# Characters of JSON in a token of English text, about; only for what is not yet known.
_BYTES_PER_TOKEN: Final = 4


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that may be spent; None: no limit."""

    cost_usd: float | None = None
    tokens: int | None = None
    requests: int | None = None

    def __bool__(self) -> bool:
        return any(value is not None for value in msgspec.structs.astuple(self))


NO_LIMITS: Final = Limits()


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """What one or more requests cost."""

    cost_usd: float = 0.0
    tokens: int = 0
    requests: int = 0
    unpriced: str | None = None
    """Why the cost of a part is unknown."""
    is_counted: bool = True
    """False if the tokens of a part are unknown."""

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            cost_usd=self.cost_usd + other.cost_usd,
            tokens=self.tokens + other.tokens,
            requests=self.requests + other.requests,
            unpriced=self.unpriced or other.unpriced,
            is_counted=self.is_counted and other.is_counted,
        )


def estimate_tokens(body: bytes) -> int:
    """Return about how many input tokens a request has."""
    return len(body) // _BYTES_PER_TOKEN


@dataclass(slots=True)
class Budget:
    """What a trial, or all trials of a job, may still spend."""

    owner: str
    """Whose it is, for messages: `trial` or `job`."""
    limits: Limits
    spent: Amount = field(default_factory=Amount)
    _reserved: list[Amount] = field(default_factory=list)

    def find_reached(self, asked: Amount) -> str | None:
        """Return a sentence about the limit that a request would exceed; None if it fits."""
        if not self.limits:
            return None
        held = sum(self._reserved, self.spent)
        after = held + asked
        return (
            self._find_requests(held, after)
            or self._find_tokens(held, after)
            or self._find_cost(held, after)
        )

    def find_uncounted(self, path: str) -> str | None:
        """Return a sentence if a limit cannot be enforced on a request that is not understood."""
        if self.limits.cost_usd is None and self.limits.tokens is None:
            return None
        return (
            f"{path.partition('?')[0]} is refused: its usage is not counted, so the limit of a "
            f"{self.owner} on cost or tokens cannot be enforced"
        )

    def _find_requests(self, held: Amount, after: Amount) -> str | None:
        most = self.limits.requests
        if most is None or after.requests <= most:
            return None
        return self._describe("requests", f"{most:,}", f"{held.requests:,}")

    def _find_tokens(self, held: Amount, after: Amount) -> str | None:
        most = self.limits.tokens
        if most is None:
            return None
        if not held.is_counted:
            return (
                f"the limit of {most:,} tokens for a {self.owner} cannot be enforced: an answer "
                "does not say how many it took"
            )
        is_over = after.tokens > most
        return self._describe("tokens", f"{most:,}", f"{held.tokens:,}") if is_over else None

    def _find_cost(self, held: Amount, after: Amount) -> str | None:
        most = self.limits.cost_usd
        if most is None:
            return None
        if held.unpriced is not None:
            limit = f"the limit of {render_money(most)} for a {self.owner}"
            return f"{limit} cannot be enforced: {held.unpriced}"
        # A request whose price is not known yet would otherwise pass a limit that is used up.
        is_over = after.cost_usd > most or held.cost_usd >= most
        limit, spent = render_money(most), render_money(held.cost_usd)
        return self._describe("cost", limit, spent) if is_over else None

    def _describe(self, what: str, limit: str, spent: str) -> str:
        return (
            f"limit reached: {what} of a {self.owner}, at most {limit}, {spent} spent or reserved"
        )

    @contextmanager
    def reserved(self, asked: Amount) -> Iterator[None]:
        """Hold an amount inside the context."""
        self._reserved.append(asked)
        try:
            yield
        finally:
            self._reserved.remove(asked)

    def add(self, amount: Amount) -> None:
        """Add what a request did cost."""
        self.spent = self.spent + amount
