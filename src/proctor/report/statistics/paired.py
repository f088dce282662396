"""Compares two sides task by task: the difference, its interval, and a p-value.

Only tasks with scores on both sides are compared; the others are listed. Each task counts once,
however many attempts it has.
"""

import math
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import batched
from operator import add
from random import Random
from typing import Final

import msgspec

from proctor.errors import StatisticsError
from proctor.report.statistics.bootstrap import SEED, cluster_bootstrap, scale
from proctor.report.statistics.intervals import CONFIDENCE, Interval, finite_sum

FEWEST_TASKS: Final = 6
"""Fewer tasks cannot show a difference at 95%: a side that wins all of 5 does so by chance in one
of 16 cases (p = 0.0625)."""

# Means that differ by less are equal except for rounding.
_ALIKE = 1e-12


class PairedTask(msgspec.Struct, frozen=True):
    """One task with scores on both sides."""

    task: str
    mean_a: float
    mean_b: float
    n_a: int
    n_b: int
    difference: float
    """mean_a - mean_b; 0 if they differ only by rounding."""


class Paired(msgspec.Struct, frozen=True):
    """A compared with B."""

    n_tasks: int
    """Tasks with scores on both sides."""
    difference: float | None
    """The mean over tasks of mean_a - mean_b; null if there are none."""
    interval: Interval | None
    """Of the difference, by resampling tasks; null below 2 tasks, or if all differences are
    equal."""
    p_value: float | None
    """The probability of such a difference by chance; null without tasks."""
    method: str | None
    """mcnemar-exact, permutation-exact or permutation-monte-carlo."""
    wins: int
    """Tasks with a greater mean of A."""
    ties: int
    losses: int
    tasks: list[PairedTask]
    only_a: list[str]
    """Tasks with scores of A only: not compared."""
    only_b: list[str]

    @property
    def has_enough_tasks(self) -> bool:
        """Whether there are enough tasks for a conclusion."""
        return self.n_tasks >= FEWEST_TASKS


def compare_paired(
    a: Mapping[str, Sequence[float]],
    b: Mapping[str, Sequence[float]],
    *,
    seed: int = SEED,
    confidence: float = CONFIDENCE,
) -> Paired:
    """Compare the rewards of two sides by task; a task without rewards counts as missing."""
    scored_a, scored_b = ({t for t in side if side[t]} for side in (a, b))
    tasks = [_pair(task, a[task], b[task]) for task in a if task in scored_a & scored_b]
    differences = [task.difference for task in tasks]
    wins = sum(each > 0 for each in differences)
    losses = sum(each < 0 for each in differences)
    p_value, method = None, None
    if tasks and all(_is_single_binary(a[each.task], b[each.task]) for each in tasks):
        p_value, method = binomial_two_sided(wins, losses), MCNEMAR
    elif tasks:
        p_value, method = sign_flip(differences, seed)
    return Paired(
        n_tasks=len(tasks),
        difference=finite_sum(differences) / len(tasks) if tasks else None,
        interval=cluster_bootstrap([[e] for e in differences], seed=seed, confidence=confidence),
        p_value=p_value,
        method=method,
        wins=wins,
        ties=len(tasks) - wins - losses,
        losses=losses,
        tasks=tasks,
        only_a=[task for task in a if task in scored_a - scored_b],
        only_b=[task for task in b if task in scored_b - scored_a],
    )


def _pair(task: str, a: Sequence[float], b: Sequence[float]) -> PairedTask:
    try:
        mean_a, mean_b = finite_sum(a) / len(a), finite_sum(b) / len(b)
        difference = finite_sum((mean_a, -mean_b))
    except StatisticsError as error:
        raise StatisticsError(f"task {task}: {error}") from error
    if abs(difference) <= _ALIKE * max(abs(mean_a), abs(mean_b)):
        difference = 0.0
    return PairedTask(task, mean_a, mean_b, len(a), len(b), difference)


def _is_single_binary(a: Sequence[float], b: Sequence[float]) -> bool:
    return len(a) == len(b) == 1 and a[0] in (0, 1) and b[0] in (0, 1)


# The sign-flip test over paired differences
#
# If neither side is better, each difference could as well have the other sign. The p-value is the
# share of all sign assignments whose sum is at least as far from 0 as the observed one, two-sided.
# Differences of 0 are dropped.


FLIPS = 9_999
"""Random sign assignments, if there are too many to enumerate."""
# Largest denominator of a difference that is treated as a fraction.
_FINEST = 10_000
# Relative error of a difference that is attributed to rounding.
_CLOSE = 1e-9
_MOST_BYTES_MOVED = 300_000_000
_MOST_IN_HALVES = 32

MCNEMAR = "mcnemar-exact"
EXACT = "permutation-exact"
MONTE_CARLO = "permutation-monte-carlo"


def binomial_two_sided(fewer: int, more: int) -> float:
    """Exact McNemar: the two-sided probability that fair coins fall at least as unevenly."""
    n, least = fewer + more, min(fewer, more)
    if fewer == more:
        return 1.0
    tail = term = 1
    for i in range(least):
        term = term * (n - i) // (i + 1)
        tail += term
    return _share(2 * tail, n)


def _share(ways: int, n: int) -> float:
    """A share of all 2**n assignments; if too small for a float, the smallest one."""
    return min(max(ways / (1 << n), sys.float_info.min), 1.0)


def sign_flip(differences: Sequence[float], seed: int) -> tuple[float, str]:
    """The p-value of paired differences, and whether it is exact.

    The order of the differences does not matter.
    """
    seen = sorted((each for each in differences if each), key=lambda each: (abs(each), each))
    if not seen:
        return 1.0, EXACT
    lattice = _find_lattice(seen)
    if lattice is not None:
        weights = [abs(number) for number in lattice]
        return _count_on_lattice(weights, abs(sum(lattice))), EXACT
    n = len(seen)
    weights, _ = scale([abs(each) for each in seen], n)
    signed = [weight if each > 0 else -weight for weight, each in zip(weights, seen, strict=True)]
    # Scaling moves a sum by up to half a unit for each term: equal sums must stay equal.
    bar = max(abs(sum(signed)) - n, 0)
    if n <= _MOST_IN_HALVES:
        return _count_in_halves(weights, bar), EXACT
    return _flip_at_random(weights, bar, seed), MONTE_CARLO


def _find_lattice(differences: Sequence[float]) -> list[int] | None:
    """The differences as integers of one unit, if there is a unit that is not too fine."""
    fractions = []
    for each in differences:
        near = Fraction(each).limit_denominator(_FINEST)
        if not near or abs(float(near) - each) > _CLOSE * abs(each):
            return None
        fractions.append(near)
    unit = math.lcm(*(each.denominator for each in fractions))
    numbers = [int(each * unit) for each in fractions]
    common = math.gcd(*numbers)
    numbers = [number // common for number in numbers]
    n, span = len(numbers), sum(map(abs, numbers))
    return numbers if n * span * (n // 8 + 1) <= _MOST_BYTES_MOVED else None


def _count_on_lattice(weights: Sequence[int], seen: int) -> float:
    """The exact share of sign assignments, by counting the subsets of each sum."""
    n, span = len(weights), sum(weights)
    width = n // 8 + 1
    ways = 1
    for weight in weights:
        ways += ways << (8 * width * weight)
    # A subset of sum s means a signed sum of 2s - span; both tails are alike.
    if seen == 0:
        return 1.0
    last = (span - seen) // 2
    text = ways.to_bytes(width * (span + 1), "little")[: width * (last + 1)]
    tail = sum(int.from_bytes(text[at : at + width], "little") for at in range(0, len(text), width))
    return _share(2 * tail, n)


def _count_in_halves(weights: Sequence[int], bar: int) -> float:
    """The exact share of sign assignments, from the sums of two halves."""
    middle = len(weights) // 2
    ones, others = (sorted(_signed_sums(half)) for half in (weights[:middle], weights[middle:]))
    inside = sum(bisect_left(others, bar - one) - bisect_right(others, -bar - one) for one in ones)
    total = len(ones) * len(others)
    return 1.0 if bar == 0 else (total - inside) / total


def _signed_sums(weights: Sequence[int]) -> list[int]:
    sums = [0]
    for weight in weights:
        sums = [total + weight for total in sums] + [total - weight for total in sums]
    return sums


def _flip_at_random(weights: Sequence[int], bar: int, seed: int) -> float:
    """The share of random sign assignments, including the observed one."""
    random = Random(seed).random  # noqa: S311 - for a simulation, which has to come again
    totals = [0] * FLIPS
    for eight in batched(weights, 8):
        # One random byte gives eight signs: the table has the sums of all 256.
        sums = _signed_sums(eight)
        table = sums * (256 // len(sums))
        totals = list(map(add, totals, map(table.__getitem__, _random_bytes(random, FLIPS))))
    hits = sum(abs(total) >= bar for total in totals)
    return (hits + 1) / (FLIPS + 1)


def _random_bytes(random: Callable[[], float], n: int) -> bytes:
    """Bytes from random(), whose sequence Python guarantees; six from each number."""
    numbers = (int(random() * (1 << 48)).to_bytes(6, "little") for _ in range(-(-n // 6)))
    return b"".join(numbers)[:n]
