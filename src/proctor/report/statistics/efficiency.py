"""What a success costs, in money and in tokens, and who is beaten by nobody on both.

Failed attempts and those without a score cost as well: all that ran is in the sum. A cost that is
not known makes the whole sum unknown; how many are known is always said.
"""

from collections.abc import Iterable, Sequence
from math import fsum

import msgspec

from proctor.ledger.row import TrialRow

_LARGEST = 1e15
"""Dollars, tokens or seconds of one trial; a stranger may write any number."""
PASS_MARK = 1.0
"""The least reward that is a success, unless something else is asked for."""


class Spent(msgspec.Struct, frozen=True):
    """What attempts took of one thing, as far as it is known."""

    n_known: int
    """Attempts for which it is known."""
    n_unknown: int
    """Attempts for which it is not: these are not 0."""
    known: float
    """The sum over those for which it is known; of all only where none is unknown."""
    n_successes: int

    @property
    def total(self) -> float | None:
        """The sum over all attempts; None where one is unknown, or there are none."""
        return self.known if self.n_known and not self.n_unknown else None

    @property
    def per_success(self) -> float | None:
        """The sum over the successes; None where the sum is unknown or nothing succeeded."""
        total = self.total
        return total / self.n_successes if total is not None and self.n_successes else None


class Efficiency(msgspec.Struct, frozen=True):
    """What attempts took, and what came of it."""

    n_trials: int
    n_successes: int
    cost_usd: Spent
    tokens: Spent
    """Input and output together; unknown where one of them is."""
    seconds: Spent


def is_success(attempt: TrialRow, pass_mark: float = PASS_MARK) -> bool:
    """Whether it was scored, at the pass mark or above."""
    return attempt.reward is not None and attempt.reward >= pass_mark


def efficiency_of(attempts: Iterable[TrialRow], pass_mark: float = PASS_MARK) -> Efficiency:
    """What the attempts took; whoever calls leaves out those that do not count."""
    listed = list(attempts)
    successes = sum(is_success(attempt, pass_mark) for attempt in listed)
    return Efficiency(
        n_trials=len(listed),
        n_successes=successes,
        cost_usd=add_up([attempt.cost_usd for attempt in listed], successes),
        tokens=add_up([_tokens(attempt) for attempt in listed], successes),
        seconds=add_up([attempt.seconds for attempt in listed], successes),
    )


def add_up(amounts: Sequence[float | None], successes: int) -> Spent:
    """What is known of some amounts; one that is too large to be believed is not known."""
    known = [amount for amount in amounts if amount is not None and 0 <= amount <= _LARGEST]
    return Spent(len(known), len(amounts) - len(known), fsum(known), successes)


def _tokens(attempt: TrialRow) -> int | None:
    if attempt.tokens_in is None or attempt.tokens_out is None:
        return None
    return attempt.tokens_in + attempt.tokens_out


def pareto(points: Sequence[tuple[float | None, float | None]]) -> list[int]:
    """Places of the points (cost, score) that no other point beats; in the order given.

    A point beats another that costs no less and scores no more, unless both are the same: points
    that are alike are all in. A point without a cost or a score beats nothing and is not in.
    """
    known = [
        (cost, -score, place)
        for place, (cost, score) in enumerate(points)
        if cost is not None and score is not None
    ]
    found: list[int] = []
    best: tuple[float, float] | None = None
    for cost, score, place in sorted(known):
        if best is None or score < best[1] or (cost, score) == best:
            best = (cost, score)
            found.append(place)
    return sorted(found)
