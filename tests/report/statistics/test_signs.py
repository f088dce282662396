"""The sign-flip test against scipy's permutation test and against going through all signs."""

import random
from itertools import product

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.report.statistics.paired import (
    EXACT,
    FLIPS,
    MONTE_CARLO,
    binomial_two_sided,
    sign_flip,
)
from tests.examples import examples
from tests.lazy_imports import LazyModule

SCIPY = LazyModule("scipy.stats")


def by_going_through(differences: list[int]) -> float:
    seen = abs(sum(differences))
    flips = list(product((1, -1), repeat=len(differences)))
    return sum(
        abs(sum(s * d for s, d in zip(flip, differences, strict=True))) >= seen for flip in flips
    ) / len(flips)


def by_scipy(differences: list[float]) -> float:
    found = SCIPY.permutation_test(
        (numpy.array(differences),), numpy.sum, permutation_type="samples", n_resamples=numpy.inf
    )
    return float(found.pvalue)


@given(st.integers(0, 60), st.integers(0, 60))
def test_scipy_finds_the_same_binomial_tail(wins: int, losses: int) -> None:
    expected = SCIPY.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert binomial_two_sided(wins, losses) == pytest.approx(expected, rel=1e-9)
    assert binomial_two_sided(wins, losses) == binomial_two_sided(losses, wins)


@given(st.lists(st.integers(-10, 10), min_size=1, max_size=8))
@settings(max_examples=examples(60))
def test_differences_on_a_grid_are_counted_exactly(differences: list[int]) -> None:
    p_value, method = sign_flip([each / 10 for each in differences], 1)
    assert method == EXACT
    assert p_value == pytest.approx(by_going_through(differences), abs=1e-12)


@given(st.lists(st.integers(-1_000_000, 1_000_000), min_size=1, max_size=8))
@settings(max_examples=examples(60))
def test_any_few_differences_are_counted_exactly(differences: list[int]) -> None:
    # A prime beyond the finest grid, so that most of these lie on none.
    p_value, method = sign_flip([each / 1_000_003 for each in differences], 1)
    assert method == EXACT
    assert p_value == pytest.approx(by_going_through(differences), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("on_a_grid", [True, False])
def test_scipy_finds_the_same_by_permutation(seed: int, on_a_grid: bool) -> None:
    draw = random.Random(seed)
    middle = 0.1 * seed
    differences = [draw.gauss(middle, 0.4) for _ in range(12)]
    if on_a_grid:
        differences = [round(each * 5) / 5 for each in differences]
    p_value, _ = sign_flip(differences, 1)
    assert p_value == pytest.approx(by_scipy(differences), abs=1e-12)


def test_random_flips_come_near_the_exact_count(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    for middle in (0.0, 0.15, 0.3):
        differences = [draw.gauss(middle, 0.5) for _ in range(30)]
        exact, method = sign_flip(differences, 1)
        assert method == EXACT
        with monkeypatch.context() as patch:
            patch.setattr("proctor.report.statistics.paired._MOST_IN_HALVES", 0)
            drawn, method = sign_flip(differences, 1)
        assert method == MONTE_CARLO
        assert drawn == pytest.approx(exact, abs=0.02)


def test_random_flips_never_say_0_and_come_again_for_a_seed() -> None:
    differences = [1 + i / 7919 for i in range(100)]
    assert sign_flip(differences, 1) == (1 / (FLIPS + 1), MONTE_CARLO)
    draw = random.Random(1)
    mixed = [draw.gauss() for _ in range(50)]
    assert sign_flip(mixed, 1) == (0.3487, MONTE_CARLO)
    assert sign_flip(mixed[::-1], 1) == sign_flip(mixed, 1) != sign_flip(mixed, 2)


@given(st.lists(st.floats(-1, 1, allow_subnormal=False), max_size=12), st.integers(0, 3))
def test_both_sides_count_alike_and_zeros_say_nothing(differences: list[float], zeros: int) -> None:
    found = sign_flip(differences, 1)
    assert sign_flip([-each for each in differences] + [0.0] * zeros, 1) == found
    assert 0 < found[0] <= 1


def test_no_difference_at_all_is_what_chance_does() -> None:
    assert sign_flip([0.0, 0.0], 1) == (1.0, EXACT)
    assert sign_flip([], 1) == (1.0, EXACT)


def test_a_fine_grid_of_many_tasks_is_counted_exactly() -> None:
    draw = random.Random(9)
    differences = [draw.randint(-100, 100) / 100 for _ in range(89)]
    assert sign_flip(differences, 1)[1] == EXACT


@pytest.mark.parametrize("n", [1000, 1076, 3000])
def test_no_p_value_is_0(n: int) -> None:
    assert binomial_two_sided(0, n) > 0
    assert sign_flip([0.5] * n, 1)[0] > 0
