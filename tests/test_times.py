"""Times as ISO text, in UTC."""

from datetime import UTC, datetime

import pytest

from proctor.times import parse_utc, render_utc


@pytest.mark.parametrize(
    "text",
    ["2026-11-15T10:00:00Z", "2026-11-15T10:00:00", "2026-11-15T12:00+02:00", "20261115T10"],
)
def test_a_time_is_in_utc_whatever_its_offset(text: str) -> None:
    assert parse_utc(text) == datetime(2026, 11, 15, 10, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", None, "0001-01-01T00:00:00+01:00"])
def test_what_is_no_time_in_utc_is_none(text: str | None) -> None:
    assert parse_utc(text) is None


def test_a_time_is_written_to_the_millisecond() -> None:
    moment = datetime(2026, 11, 15, 10, tzinfo=UTC)
    assert render_utc(moment) == "2026-11-15T10:00:00.000Z"
    assert render_utc(moment, "auto") == "2026-11-15T10:00:00Z"
