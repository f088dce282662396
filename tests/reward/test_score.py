"""Scored and Unscored are values."""

import pytest

from proctor.reward.score import Score, Scored, Unscored


def test_a_score_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Scored({"reward": 1}).rewards = {}  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Unscored("no file").reason = ""  # type: ignore[misc]


def test_a_reason_needs_no_error_and_no_code() -> None:
    assert Unscored("declined") == Unscored(reason="declined", error=None, code=None)


def test_no_rewards_and_no_score_are_two_things() -> None:
    scores: list[Score] = [Scored({}), Unscored("nothing was written")]
    assert scores[0] != scores[1]


def test_scores_are_equal_by_what_they_say() -> None:
    assert Scored({"a": 1, "b": 0.5}) == Scored({"a": 1, "b": 0.5})
    assert Unscored("x", "OSError", "code") != Unscored("x", "OSError", "other")
