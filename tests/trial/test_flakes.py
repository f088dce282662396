"""When two verifications gave the same, and how often two of one state do not."""

import math

import pytest

from proctor.trial.flakes import (
    Reverification,
    count_pairs,
    note_exception,
    note_rewards,
    parse_verified_again,
    render_result,
    render_verified_again,
)


@pytest.mark.parametrize(
    ("results", "rate"),
    [
        ("", None),
        ("a", None),
        ("aaaa", 0.0),
        ("ab", 1.0),
        ("aab", 2 / 3),
        ("abab", 4 / 6),
        ("abcd", 1.0),
        ("aaaaaaaaab", 9 / 45),
    ],
)
def test_the_rate_is_the_share_of_pairs_that_differ(results: str, rate: float | None) -> None:
    assert count_pairs(results).rate == rate
    assert count_pairs(results[::-1]).rate == rate


def test_the_rate_estimates_without_bias_how_often_two_verifications_disagree() -> None:
    # Four verifications that pass with probability 1/4 each, all cases by how probable they are.
    p, mean = 0.25, 0.0
    for passes in range(5):
        weight = math.comb(4, passes) * p**passes * (1 - p) ** (4 - passes)
        mean += weight * (count_pairs("p" * passes + "f" * (4 - passes)).rate or 0.0)
    assert math.isclose(mean, 2 * p * (1 - p))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"reward": 1}, {"reward": 1.0}),
        ({"reward": 0.0}, {"reward": -0.0}),
        ({"reward": 0.1}, {"reward": math.nextafter(0.1, 1)}),
        ({"reward": math.nan}, {"reward": math.inf}),
        ({"a": 1}, {"b": 1}),
        ({}, None),
    ],
)
def test_results_are_told_apart_to_the_last_bit(
    left: dict[str, float], right: dict[str, float] | None
) -> None:
    assert render_result(left) != render_result(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"reward": math.nan}, {"reward": float("nan")}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"reward": 10**5000}, {"reward": 10**5000}),
    ],
)
def test_the_same_rewards_are_the_same_result(
    left: dict[str, float], right: dict[str, float]
) -> None:
    assert render_result(left) == render_result(right)


def test_what_is_written_reads_back_with_its_figures() -> None:
    kept = Reverification(step=None, state="frozen")
    kept.add(note_rewards({"reward": 1.0, "odd": math.nan, "long": 10**30}, 0.25))
    kept.add(note_exception("VerifierTimeoutError", "too long", 1.0))
    kept.add(note_rewards({"long": 10**30, "odd": math.nan, "reward": 1.0}, 0.5))
    text = render_verified_again("org/task", "ab" * 32, 2, [kept, Reverification(step=None)])
    (state,) = parse_verified_again(text.encode()).states
    assert [each.is_same for each in state.verifications] == [True, False, True]
    assert (state.n_differing, state.pairs, state.differing_pairs) == (1, 3, 2)
    assert state.flake_rate == 2 / 3
    assert '"odd": null' in text
    assert f'"long": {10**30}' in text
