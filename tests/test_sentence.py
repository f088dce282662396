"""Pieces of sentences."""

import math

import pytest

from proctor.sentence import count_of, reason_of, render_errored, shown


def test_numbers_of_things() -> None:
    assert [count_of(n, "problem") for n in (0, 1, 2000)] == [
        "0 problems",
        "1 problem",
        "2,000 problems",
    ]
    assert count_of(2, "entry", "entries") == "2 entries"


def test_the_system_s_reason_or_python_s() -> None:
    assert reason_of(FileNotFoundError(2, "No such file")) == "No such file"
    assert reason_of(OSError("odd")) == "odd"
    assert reason_of(ValueError("embedded null byte")) == "embedded null byte"


def test_values_are_cut_and_never_fail() -> None:
    assert shown({"a": "é"}) == '{"a": "é"}'
    assert shown("x" * 100) == '"' + "x" * 58 + "…"
    assert shown(math.inf) == "Infinity"
    endless: list[object] = []
    endless.append(endless)
    assert shown(endless) == "list"


@pytest.mark.parametrize(("number", "text"), [(0, "0 errored"), (5, "5 errored (scored or not)")])
def test_errored_trials_may_be_scored_too(number: int, text: str) -> None:
    assert render_errored(number) == text
