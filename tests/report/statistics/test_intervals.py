"""Wilson's interval against published values, scipy and statsmodels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import StatisticsError
from proctor.report.statistics.intervals import wilson
from tests.lazy_imports import LazyModule

SCIPY = LazyModule("scipy.stats")
STATSMODELS = LazyModule("statsmodels.stats.proportion")

counts = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0000),
    ],
)
def test_published_values(successes: int, n: int, low: float, high: float) -> None:
    found = wilson(successes, n)
    assert found is not None
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


@given(counts, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_scipy_and_statsmodels_agree(counted: tuple[int, int], confidence: float) -> None:
    found = wilson(*counted, confidence)
    assert found is not None
    theirs = SCIPY.binomtest(*counted).proportion_ci(confidence, method="wilson")
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    others = STATSMODELS.proportion_confint(*counted, alpha=1 - confidence, method="wilson")
    assert (found.low, found.high) == pytest.approx(others, abs=1e-12)


@given(counts)
def test_an_interval_lies_in_0_to_1_holds_the_share_and_mirrors(counted: tuple[int, int]) -> None:
    successes, n = counted
    found, other = wilson(successes, n), wilson(n - successes, n)
    assert found is not None
    assert other is not None
    assert 0 <= found.low <= successes / n <= found.high <= 1
    assert (found.low, found.high) == pytest.approx((1 - other.high, 1 - other.low), abs=1e-12)


def test_no_trials_have_no_interval() -> None:
    assert wilson(0, 0) is None


def test_all_alike_reaches_the_end_exactly() -> None:
    none, every = wilson(0, 7), wilson(7, 7)
    assert none is not None
    assert every is not None
    assert (none.low, every.high) == (0.0, 1.0)


@pytest.mark.parametrize(("successes", "n"), [(2, 1), (-1, 1), (0, -1)])
def test_counts_that_cannot_be_are_refused(successes: int, n: int) -> None:
    with pytest.raises(StatisticsError, match="expected 0 to"):
        wilson(successes, n)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, float("nan")])
def test_a_confidence_that_is_no_share_is_refused(confidence: float) -> None:
    with pytest.raises(StatisticsError, match="confidence is"):
        wilson(1, 2, confidence)
