"""Shares are exact, and of several misses the gravest decides."""

from itertools import permutations

import pytest

from proctor.report.gate.judging import Check, MaxErrors, Miss, gravest


@pytest.mark.parametrize("trials", range(1, 200, 7))
def test_a_share_of_errors_is_exact(trials: int) -> None:
    for errors in range(trials + 1):
        allowed = MaxErrors(share=errors / trials)
        assert allowed.allows(errors, trials)
        assert not allowed.allows(errors + 1, trials)


def test_the_gravest_miss_decides_in_whatever_order_they_come() -> None:
    order = [Miss.DAMAGED, Miss.UNSHOWN, Miss.INCOMPLETE, Miss.ERRORS, Miss.SCORE, Miss.COST]
    for n in range(1, len(order) + 1):
        for some in permutations(order, n):
            checks = [Check(thing="x", condition="c", found="f", miss=miss) for miss in some]
            met = Check(thing="x", condition="c", found="f")
            assert gravest([met, *checks]) is min(some, key=order.index)
    assert gravest([]) is None
    assert sorted(miss.exit_code for miss in order) == [1, 3, 4, 5, 6, 7]
