"""pass@k: the probability that one of k attempts at a task succeeds, averaged over the tasks.

Defined only for groups in which every scored trial has exactly one reward, 0 or 1; a trial without
rewards is a failure. The estimate is the running product 1 - (n-c)/n * (n-c-1)/(n-1) …, in that
order: a formula with binomials differs in the last bits.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import compress

from proctor.reward.metric import RewardColumn
from proctor.reward.number import exact_sum

_BINARY = frozenset((0, 1))


def eligible_ks(attempts: int) -> list[int]:
    """The k reported for that many attempts: powers of two and multiples of five, from 2."""
    powers = {1 << exponent for exponent in range(1, attempts.bit_length())}
    return sorted(powers | set(range(5, attempts + 1, 5)))


def estimate(attempts: int, successes: int, k: int) -> float:
    """pass@k of one task."""
    return _estimates(attempts, successes, [k])[0]


def pass_at_k(tasks: Sequence[str], column: RewardColumn) -> dict[int, float]:
    """pass@k of a group, by k; empty when undefined for these rewards.

    `tasks` and `column` have one item per trial, in the same order.
    """
    if column.n_single != column.n_scored or not _BINARY.issuperset(column.first):
        return {}
    attempts = Counter(tasks)
    if not attempts:
        return {}
    successes = Counter(compress(tasks, column.first))
    ks = eligible_ks(min(attempts.values()))
    known: dict[tuple[int, int], list[float]] = {}
    rows = []
    for task, n in attempts.items():
        counts = (n, successes[task])
        if counts not in known:
            known[counts] = _estimates(*counts, ks)
        rows.append(known[counts])
    return {k: exact_sum(estimates) / len(rows) for k, *estimates in zip(ks, *rows, strict=True)}


def _estimates(attempts: int, successes: int, ks: Sequence[int]) -> list[float]:
    """pass@k of one task for ascending ks, from one running product."""
    failures = attempts - successes
    found = []
    product, done = 1.0, 0
    for k in ks:
        if failures < k:
            found.append(1.0)
            continue
        for i in range(done, k):
            product *= (failures - i) / (attempts - i)
        done = k
        found.append(1.0 - product)
    return found
