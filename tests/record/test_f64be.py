"""Scores as hex digits."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ScoreRecordError
from proctor.record.score_record import parse_f64be, render_f64be


@pytest.mark.parametrize(
    ("score", "digits"),
    [
        (0.0, "0000000000000000"),
        (0, "0000000000000000"),
        (5e-324, "0000000000000001"),
        (1 / 3, "3fd5555555555555"),
        (0.5, "3fe0000000000000"),
        (0.9999999999999999, "3fefffffffffffff"),
        (1.0, "3ff0000000000000"),
        (1, "3ff0000000000000"),
    ],
)
def test_a_score_has_its_digits(score: float, digits: str) -> None:
    assert render_f64be(score) == digits
    assert parse_f64be(digits, "score") == score


@pytest.mark.parametrize(
    "score", [1.0000000000000002, -5e-324, -0.1, 2, float("nan"), float("inf"), float("-inf")]
)
def test_what_is_out_of_range_is_no_score(score: float) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        render_f64be(score)
    assert str(caught.value) == "score must be finite and in [0, 1]"


def test_zero_has_no_sign() -> None:
    with pytest.raises(ScoreRecordError) as caught:
        render_f64be(-0.0)
    assert str(caught.value) == "negative zero is not canonical"


@pytest.mark.parametrize(
    ("digits", "problem"),
    [
        ("8000000000000000", "negative zero is not canonical"),
        ("3ff0000000000001", "score must be finite and in [0, 1]"),
        ("8000000000000001", "score must be finite and in [0, 1]"),
        ("7ff0000000000000", "score must be finite and in [0, 1]"),
        ("7ff8000000000000", "score must be finite and in [0, 1]"),
    ],
)
def test_digits_of_something_else_are_refused(digits: str, problem: str) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_f64be(digits, "k[0]")
    assert str(caught.value) == f"k[0] is {digits}: {problem}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3ff000000000000",
        "3ff00000000000000",
        "3FF0000000000000",
        "3ff000000000000g",
        " 3ff0000000000000",
        "3ff0000000000000\n",
        None,
        1,
        1.0,
    ],
)
def test_what_is_not_sixteen_digits_is_refused(text: object) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        parse_f64be(text, "here")
    assert str(caught.value) == f"here is {text!r}; expected 16 lower-case hex digits"


@given(st.floats(0, 1).filter(lambda score: str(score) != "-0.0"))
def test_a_score_comes_back_bit_for_bit(score: float) -> None:
    digits = render_f64be(score)
    assert bytes.fromhex(digits) == struct.pack(">d", score)
    assert repr(parse_f64be(digits, "score")) == repr(score)
