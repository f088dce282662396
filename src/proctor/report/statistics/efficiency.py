"""The cost of a success, in money and in tokens, and the Pareto front of cost and score.

Failed trials and those without a score cost as well: the sum is over all that ran. One unknown cost
makes the sum unknown; the number of known costs is always reported.
"""

from collections.abc import Iterable, Sequence
from math import fsum

import msgspec

from proctor.ledger.counting import Countable
from proctor.ledger.row import TrialRow

# Dollars, tokens or seconds of one trial; records may contain any number.
_LARGEST = 1e15
PASS_MARK = 1.0
"""The lowest reward that is a success by default."""


class Spent(msgspec.Struct, frozen=True):
    """The total of one cost of trials, as far as it is known."""

    n_known: int
    """Trials with a known cost."""
    n_unknown: int
    """Trials with an unknown cost, which is not 0."""
    known: float
    """The sum over trials with a known cost."""
    n_successes: int

    @property
    def total(self) -> float | None:
        """The sum over all trials; None if one is unknown, or there are none."""
        return self.known if self.n_known and not self.n_unknown else None

    @property
    def per_success(self) -> float | None:
        """The sum divided by the successes; None if it is unknown or there are none."""
        total = self.total
        return total / self.n_successes if total is not None and self.n_successes else None


class Efficiency(msgspec.Struct, frozen=True):
    """Costs of trials, and successes."""

    n_trials: int
    n_successes: int
    cost_usd: Spent
    tokens: Spent
    """Input and output together; unknown if one of them is."""
    seconds: Spent


class PhaseTimes(msgspec.Struct, frozen=True):
    """Seconds of trials by phase."""

    setup: Spent
    """Environment and agent."""
    agent: Spent
    verification: Spent


def is_success(trial: Countable, pass_mark: float = PASS_MARK) -> bool:
    """Whether it was scored at the pass mark or above."""
    return trial.reward is not None and trial.reward >= pass_mark


def efficiency_of(trials: Iterable[TrialRow], pass_mark: float = PASS_MARK) -> Efficiency:
    """The costs of trials; the caller leaves out those that do not count."""
    listed = list(trials)
    successes = sum(is_success(trial, pass_mark) for trial in listed)
    return Efficiency(
        n_trials=len(listed),
        n_successes=successes,
        cost_usd=add_up([trial.cost_usd for trial in listed], successes),
        tokens=add_up([_tokens(trial) for trial in listed], successes),
        seconds=add_up([trial.seconds for trial in listed], successes),
    )


def time_phases(trials: Iterable[TrialRow]) -> PhaseTimes:
    """The seconds of trials by phase; the caller leaves out those that do not count."""
    listed = list(trials)
    successes = sum(map(is_success, listed))
    return PhaseTimes(
        setup=add_up([trial.setup_seconds for trial in listed], successes),
        agent=add_up([trial.agent_seconds for trial in listed], successes),
        verification=add_up([trial.verification_seconds for trial in listed], successes),
    )


def add_up(amounts: Sequence[float | None], successes: int) -> Spent:
    """Sum amounts; one that is too large to be believed counts as unknown."""
    known = [amount for amount in amounts if amount is not None and 0 <= amount <= _LARGEST]
    return Spent(len(known), len(amounts) - len(known), fsum(known), successes)


def _tokens(trial: TrialRow) -> int | None:
    if trial.tokens_in is None or trial.tokens_out is None:
        return None
    return trial.tokens_in + trial.tokens_out


def pareto(points: Sequence[tuple[float | None, float | None]]) -> list[int]:
    """Indexes of the points (cost, score) that no other point dominates, in the given order.

    A point dominates another that costs no less and scores no more, unless both are equal: equal
    points are all included. A point without a cost or a score dominates nothing and is not
    included.
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
