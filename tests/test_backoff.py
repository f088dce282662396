"""How long a request waits before it is repeated, whatever a server asks for."""

from datetime import UTC, datetime
from http.client import HTTPMessage

import httpx
import pytest

from proctor.backoff import Headers, find_retry_after, find_wait

NOW = datetime(2026, 11, 16, 10, tzinfo=UTC)


def of_http_client(headers: dict[str, str]) -> HTTPMessage:
    message = HTTPMessage()
    for name, value in headers.items():
        message[name] = value
    return message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After-Ms": "250", "Retry-After": "7"}, 0.25),
        ({"Retry-After-Ms": "soon", "Retry-After": "7"}, 7.0),
        ({"Retry-After": "Mon, 16 Nov 2026 10:00:30 GMT"}, 30.0),
        ({"Retry-After": "Mon, 16 Nov 2026 09:00:00 GMT"}, 0.0),
        ({"Retry-After": "Mon, 16 Nov 2026 10:00:30"}, None),
        ({"Retry-After": "Mon, 16 Nov 2026 10:00:30 +99999999999999999999"}, None),
        ({"Retry-After": "Mon, 16 Nov 99999999999999999999 10:00:30 GMT"}, None),
        ({"Retry-After": "Mon, 16 Nov 2026 10:00:30 +9999"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": ""}, None),
    ],
)
def test_a_server_asks_in_seconds_or_with_a_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    each: tuple[Headers, ...] = (httpx.Headers(headers), of_http_client(headers))
    assert [find_retry_after(one, NOW) for one in each] == [seconds, seconds]


def test_a_server_is_not_waited_for_longer_than_five_minutes() -> None:
    assert [find_wait(asked, 1, 0.5) for asked in (0.0, 7.0, 1e300)] == [0.0, 7.0, 300.0]


def test_waits_double_up_to_a_minute_and_differ_by_chance() -> None:
    assert [find_wait(None, n, 1.0) for n in (1, 2, 3, 7, 10_000)] == [1, 2, 4, 60, 60]
    assert [find_wait(None, n, 0.0) for n in (1, 2, 3)] == [0.5, 1, 2]
