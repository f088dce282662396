"""Hypothesis over the table of routes: no answer is a defect, and nothing is written."""

import re
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import BaseRoute, Mount, Route

from proctor.web.app import ROUTES
from tests.examples import examples
from tests.web.subjects import JOBS, SEALED, snapshot
from tests.web.test_bad_requests import check_plain

STREAMS = re.compile(r"/events$")
"""Routes that go on answering; of them only the head is asked for."""

NAMES = st.one_of(
    st.sampled_from([*SEALED, "broken-key__aaaaaaa", "..", ".", "", "0", "-1", "a/b", "%2e%2e"]),
    st.text(max_size=30),
    st.binary(max_size=20).map(lambda data: data.decode("latin-1")),
)
KEYS = st.sampled_from(
    ["q", "page", "task", "outcome", "model", "agent", "sort", "view", "from", "count", "a", "b",
     "at", "since", "role", "tool", "policy", "dataset", "step", "x"]
)  # fmt: skip
VALUES = st.one_of(
    NAMES,
    st.integers(-(10**30), 10**30).map(str),
    st.sampled_from(["1", "2", "low", "trials", "full", "errored", "nan", "1e999", "true"]),
)


def parameters_of(route: BaseRoute) -> list[str]:
    """The names in a route's path."""
    return re.findall(r"{(\w+)(?::\w+)?}", getattr(route, "path", ""))


READING = [
    route
    for route in ROUTES
    if isinstance(route, Mount) or (isinstance(route, Route) and "GET" in (route.methods or ()))
]


def test_every_route_is_tried() -> None:
    others = [route for route in ROUTES if route not in READING]
    assert all(isinstance(route, Route) and route.methods == {"POST"} for route in others)
    assert len(READING) >= 4


@st.composite
def targets(draw: st.DrawFn) -> tuple[str, str]:
    """A method and an address that some route may take."""
    route = draw(st.sampled_from(READING))
    path = getattr(route, "path", "")
    if isinstance(route, Mount):
        path = f"{path}/{quote(draw(NAMES))}"
    for name in parameters_of(route):
        filled = quote(draw(NAMES), safe="")
        path = re.sub(rf"{{{name}(?::\w+)?}}", lambda _, text=filled: text, path)
    query = urlencode(draw(st.lists(st.tuples(KEYS, VALUES), max_size=4)))
    method = "HEAD" if STREAMS.search(path) else draw(st.sampled_from(["GET", "GET", "HEAD"]))
    return method, f"{path}?{query}" if query else path


@pytest.mark.parametrize("name", ["jobs_client", "ledger_client"])
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(target=targets())
def test_no_address_is_a_defect(
    name: str, target: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    client: httpx.Client = request.getfixturevalue(name)
    method, address = target
    response = client.request(method, "/", extensions={"target": address.encode()})
    # 503: a verification is under way already, from an address before this one.
    busy = (503,) if address.startswith("/ledger/verification") else ()
    expected = (200, 303, 304, 307, 400, 404, 405, 409, 410, 414, 422, *busy)
    assert response.status_code in expected, address
    if "content-disposition" in response.headers:
        # A line of the log, as it is: nothing in it may do anything.
        assert response.headers["content-security-policy"].startswith("sandbox;"), address
    elif response.status_code not in (303, 307):
        check_plain(response)


@pytest.mark.parametrize("name", ["jobs_client", "ledger_client"])
@settings(max_examples=examples(20), suppress_health_check=list(HealthCheck))
@given(target=targets(), method=st.sampled_from(["POST", "PUT", "DELETE", "PATCH"]))
def test_nobody_writes_without_a_token(
    name: str, target: tuple[str, str], method: str, request: pytest.FixtureRequest
) -> None:
    client: httpx.Client = request.getfixturevalue(name)
    response = client.request(
        method, "/", extensions={"target": target[1].encode()}, data={"text": "x"}
    )
    assert response.status_code in (307, 400, 401, 403, 404, 405, 414), target


def test_nothing_is_written_by_all_of_that(
    jobs_client: httpx.Client, ledger_client: httpx.Client, sealed: Path
) -> None:
    before = snapshot(sealed), snapshot(JOBS)
    for client in (jobs_client, ledger_client):
        for route in READING:
            path = re.sub(r"{\w+(?::\w+)?}", SEALED[0], getattr(route, "path", ""))
            method = "HEAD" if STREAMS.search(path) else "GET"
            assert client.request(method, path).status_code < 500, path
    assert (snapshot(sealed), snapshot(JOBS)) == before
