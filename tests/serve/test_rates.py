"""Limits on addresses and tokens."""

import pytest
from starlette.datastructures import URL
from starlette.requests import Request

from proctor.serve.app import Rate, _is_reading
from proctor.serve.listening import network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("2001:db8:1:3::9", "2001:db8:1:3::"),
        ("::1", "::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.2", "192.0.2.2"),
        ("", ""),
    ],
)
def test_addresses_that_one_user_chooses_freely_are_one(address: str, network: str) -> None:
    assert network_of(address) == network


def test_a_rate_gives_a_burst_and_then_so_many_a_second() -> None:
    rate = Rate(200, 1000)
    assert [rate.take("node", 0.0) for _ in range(1000)] == [0.0] * 1000
    assert rate.take("node", 0.0) == pytest.approx(1 / 200)
    assert rate.take("another", 0.0) == 0.0
    found = [rate.take("node", 1.0) for _ in range(201)]
    assert found[:200] == [0.0] * 200
    assert found[200] > 0
    # A year later too, no more than the burst.
    found = [rate.take("node", 3e7) for _ in range(1001)]
    assert (found[999], found[1000] > 0) == (0.0, True)


@pytest.mark.parametrize("url", [None, "http://x/artifacts/missing?/submit"])
def test_the_host_header_does_not_say_what_may_be_written(url: str | None) -> None:
    class Asked(Request):
        """A request whose address is made of the Host header, as in Starlette 1.0.0."""

        @property
        def url(self) -> URL:
            return URL(url) if url else super().url

    def is_reading(path: str) -> bool:
        headers = [(b"host", b"x/artifacts/missing?")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        return _is_reading(Asked({**scope, "query_string": b"", "scheme": "http"}))

    assert not is_reading("/submit")
    assert is_reading("/artifacts/missing")
