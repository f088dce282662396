"""Pieces of sentences."""

import math

import pytest

from proctor.sentence import (
    count_of,
    reason_of,
    render_duration,
    render_errored,
    render_figure,
    render_limit,
    render_money,
    render_size,
    shown,
    without_escapes,
    without_number,
)


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


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (0.3999999999999999, "0.4"),
        (2 / 3, "0.667"),
        (0.9999999999999999, "1"),
        (1.0, "1"),
        (0, "0"),
        (-0.0, "0"),
        (-0.25, "-0.25"),
        (0.9996, "0.9996"),
        (0.0001, "0.0001"),
        (12345.6, "12,346"),
        (1e300, "1e+300"),
        (10**400, "1" + "0" * 58 + "…"),
        (math.nan, "nan"),
    ],
)
def test_figures_have_one_form(figure: float, text: str) -> None:
    assert render_figure(figure) == text


def test_money_has_one_form() -> None:
    amounts = [0.0, 0.00001, 0.0123, 0.9, 1.0, 1234.567]
    assert [render_money(each) for each in amounts] == [
        "$0.00",
        "under $0.0001",
        "$0.0123",
        "$0.9000",
        "$1.00",
        "$1,234.57",
    ]


def test_durations_have_one_form() -> None:
    durations = [0.0, 0.24, 59.94, 59.97, 245.0, 3599.6, 7800.0]
    assert [render_duration(each) for each in durations] == [
        "0.0s",
        "0.2s",
        "59.9s",
        "1m 00s",
        "4m 05s",
        "1h 00m",
        "2h 10m",
    ]


def test_sizes_have_one_form() -> None:
    sizes = [0, 999, 1000, 1_234_567_890, 999_999, 5e15]
    assert [render_size(each) for each in sizes] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "1.2 GB",
        "1.0 MB",
        "5000.0 TB",
    ]


def test_limits_are_written_as_they_are_set() -> None:
    limits = [1 << 34, 16 << 20, 5 << 10, 1500, (1 << 20) + 1]
    shown = ["16 GiB", "16 MiB", "5 KiB", "1,500 B", "1,048,577 B"]
    assert [render_limit(each) for each in limits] == shown


def test_colours_and_movements_of_the_cursor_are_removed() -> None:
    assert without_escapes("\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b[2K\x1b[?25lend") == "red end"
    assert without_escapes("plain \t text\n") == "plain \t text\n"


def test_numbers_of_system_errors_are_left_out() -> None:
    assert without_number("[Errno 111] Connection refused") == "Connection refused"
    assert without_number("timed out: [Errno -2] Name or service not known") == (
        "timed out: Name or service not known"
    )
    assert without_number("[Errno x]") == "[Errno x]"
