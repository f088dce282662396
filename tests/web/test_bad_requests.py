"""Whatever is asked: the right code, a plain page, all headers, no traceback, nothing written."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from proctor.web import server
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.pages import HEADERS
from proctor.web.reviews import read_form, require_token
from tests.web.browsing import NEW_CONNECTIONS, NO_TLS, serving
from tests.web.conftest import TOKEN
from tests.web.subjects import JOBS, SEALED, snapshot

JOB = "04-binary-scripted-k5"
TRICKS = (
    "..",
    "%2e%2e",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%5c..%5cetc",
    "%00",
    "a%00b",
    "%ff%fe",
    "%c0%ae%c0%ae",
    "//etc/passwd",
    "%2f%2fetc",
    ".",
    "%20",
    "~root",
    "é" * 100,
    "\U0001f600",
    "x" * 3000,
    "%0d%0aSet-Cookie:%20a=b",
    "<script>alert(1)</script>",
    "%F0%9F%98%80%E2%80%AE",
)
PLACES = (
    "/experiments/{}",
    "/experiments/{}/events",
    "/static/{}",
    "/{}",
    f"/experiments/{JOB}/{{}}",
)


def check_plain(response: httpx.Response) -> None:
    """Refuse a response that shows too much, or says too little."""
    assert "Traceback" not in response.text
    assert 'File "' not in response.text
    for name, value in HEADERS.items():
        assert response.headers.get(name) == value, name
    assert "access-control-allow-origin" not in response.headers
    assert "set-cookie" not in response.headers


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("client", ["jobs_client", "ledger_client"])
def test_a_path_that_leads_nowhere_is_not_found(
    place: str, client: str, request: pytest.FixtureRequest
) -> None:
    opened: httpx.Client = request.getfixturevalue(client)
    for trick in TRICKS:
        response = raw_get(opened, place.format(trick))
        assert response.status_code in (307, 400, 404), trick
        assert "root:" not in response.text
        if response.status_code != 307:
            check_plain(response)


def raw_get(client: httpx.Client, target: str) -> httpx.Response:
    """A request whose target nobody has tidied up."""
    raw = quote(target, safe="".join(map(chr, range(33, 127)))).encode()
    return client.get("/", extensions={"target": raw})


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("/nothing", "there is no such page"),
        ("/experiments/unknown", "there is no experiment &#39;unknown&#39;"),
        ("/experiments/unknown/events", "there is no experiment"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(
    jobs_client: httpx.Client, ledger_client: httpx.Client, path: str, sentence: str
) -> None:
    for client in (jobs_client, ledger_client):
        response = client.get(path)
        assert response.status_code == 404
        assert sentence in response.text
        check_plain(response)


@pytest.mark.parametrize(
    "query",
    ["page=0", "page=-1", "page=x", "page=%C2%B2", "sort=up", "outcome=good", "view=x",
     "task=" + "x" * 300],
    ids=lambda query: query[:20],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_refused(jobs_client: httpx.Client, query: str) -> None:
    response = jobs_client.get(f"/experiments/{JOB}?{query}")
    assert response.status_code == 400
    assert "expected" in response.text
    check_plain(response)


def test_a_page_beyond_the_last_is_the_last(
    jobs_client: httpx.Client, ledger_client: httpx.Client
) -> None:
    for client in (jobs_client, ledger_client):
        assert JOB in client.get("/?page=999999999").text
        assert client.get(f"/experiments/{JOB}?page=99").status_code == 200


def test_an_address_that_is_endless_is_refused(jobs_client: httpx.Client) -> None:
    response = jobs_client.get("/experiments/" + "x" * 5000)
    assert response.status_code == 414
    check_plain(response)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_another_method_is_not_allowed(jobs_client: httpx.Client, method: str) -> None:
    for path in ("/", f"/experiments/{JOB}", f"/experiments/{JOB}/events"):
        response = jobs_client.request(method, path)
        assert response.status_code == 405
        assert set(response.headers["allow"].split(", ")) == {"GET", "HEAD"}
        check_plain(response)
    assert jobs_client.request(method, "/static/style.css").status_code == 405


def test_a_head_has_no_body(jobs_client: httpx.Client) -> None:
    for path in ("/", f"/experiments/{JOB}", f"/experiments/{JOB}/events", "/static/style.css"):
        response = jobs_client.head(path)
        assert response.status_code == 200
        assert response.content == b""
        check_plain(response)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1@evil.example",
     "127.0.0.1:80:evil", "127.0.0.1:x", "[::1]", "10.0.0.1", ""],
)  # fmt: skip
def test_another_host_is_refused(jobs_client: httpx.Client, host: str) -> None:
    response = jobs_client.get("/", headers={"Host": host})
    assert response.status_code == 400
    assert JOB not in response.text
    check_plain(response)


# Writing


async def _write(request: Request) -> Response:
    require_token(request)
    fields = await read_form(request)
    return PlainTextResponse(f"written: {sorted(fields.items())}")


@pytest.fixture(scope="module")
def writer() -> Iterator[httpx.Client]:
    """A client of a viewer with one more route, which writes for whoever may."""
    app = make_app(DataSource(jobs=(JOBS / JOB,)), token=TOKEN)
    app.router.routes.insert(0, Route("/write", _write, methods=["POST"]))
    app.router.routes.insert(0, Route("/defect", _break))
    with (
        serving(app) as address,
        httpx.Client(base_url=address, timeout=30, verify=NO_TLS, limits=NEW_CONNECTIONS) as client,
    ):
        yield client


def _break(_request: Request) -> Response:
    raise ZeroDivisionError("a secret of the program")


def test_the_address_with_the_token_gives_a_cookie_and_leads_on(writer: httpx.Client) -> None:
    response = writer.get(f"/experiments/{JOB}?sort=low&token={TOKEN}&outcome=full")
    assert response.status_code == 303
    assert response.headers["location"] == f"/experiments/{JOB}?sort=low&outcome=full"
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert response.headers["cache-control"] == "no-store"
    writer.cookies.clear()


def test_a_token_does_not_lead_to_another_site(writer: httpx.Client) -> None:
    response = raw_get(writer, f"//evil.example/?token={TOKEN}")
    assert response.headers["location"] == "/evil.example/"
    writer.cookies.clear()


@pytest.mark.parametrize("token", ["", "wrong", "the-token-of-the-tests ", "é"])
def test_a_wrong_token_gives_no_cookie(writer: httpx.Client, token: str) -> None:
    response = writer.get("/", params={"token": token})
    assert response.status_code == 403
    check_plain(response)


def cookie_of(client: httpx.Client, token: str = TOKEN) -> dict[str, str]:
    """The header by which a browser sends what it was given."""
    return {"Cookie": f"proctor-{urlsplit(str(client.base_url)).port}={token}"}


def own(client: httpx.Client) -> str:
    """The viewer's own origin."""
    return str(client.base_url).rstrip("/")


def test_who_has_the_token_may_write(writer: httpx.Client) -> None:
    fields = {"text": "fine", "verdict": "pass"}
    ways = (
        {"Authorization": f"Bearer {TOKEN}"},
        {**cookie_of(writer), "Origin": own(writer)},
        {**cookie_of(writer), "Sec-Fetch-Site": "same-origin"},
    )
    for headers in ways:
        response = writer.post("/write", data=fields, headers=headers)
        assert response.status_code == 200, response.text
        assert response.text == "written: [('text', 'fine'), ('verdict', 'pass')]"


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 401),
        ({"Cookie": "proctor=x; other=y"}, 401),
        ({"Authorization": "Basic eDp5"}, 401),
        ({"Authorization": "Bearer wrong"}, 403),
        ({"Authorization": "Bearer"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "null"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "same-site"}, 403),
        ({"own": TOKEN}, 403),
        ({"own": TOKEN, "Origin": "http://evil.example"}, 403),
        ({"own": TOKEN, "Origin": "http://127.0.0.1:1"}, 403),
        ({"own": "wrong", "Sec-Fetch-Site": "same-origin"}, 403),
    ],
)
def test_nobody_else_may_write(writer: httpx.Client, headers: dict[str, str], code: int) -> None:
    sent = {name: value for name, value in headers.items() if name != "own"}
    if "own" in headers:
        sent |= cookie_of(writer, headers["own"])
    # A refusal may come before the body is read: a body is not sent, so that no reset hides it.
    response = writer.post("/write", headers=sent)
    assert response.status_code == code
    assert "written:" not in response.text
    check_plain(response)


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b"a=" + b"x" * (1 << 18), "application/x-www-form-urlencoded", 413),
        (b"a=%ff", "application/x-www-form-urlencoded", 400),
        (b"\xff", "application/x-www-form-urlencoded", 400),
        (
            b"&".join(b"a=%d" % each for each in range(200)),
            "application/x-www-form-urlencoded",
            400,
        ),
        (b"{}", "application/json", 415),
        (b"", "", 415),
    ],
    ids=["large", "no text", "no text at all", "many fields", "JSON", "nothing"],
)
def test_what_is_no_form_of_ours_is_refused(
    writer: httpx.Client, body: bytes, kind: str, code: int
) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
    response = writer.post("/write", content=body, headers=headers)
    assert response.status_code == code
    check_plain(response)


def test_without_a_token_of_its_own_a_viewer_lets_nobody_write() -> None:
    app = make_app(DataSource(jobs=(JOBS / JOB,)))
    app.router.routes.insert(0, Route("/write", _write, methods=["POST"]))
    with serving(app) as address:
        for given in ("None", "x"):
            headers = {"Authorization": f"Bearer {given}"}
            assert httpx.post(f"{address}/write", headers=headers, verify=NO_TLS).status_code == 403


def test_a_defect_shows_nothing_of_itself(writer: httpx.Client) -> None:
    response = writer.get("/defect")
    assert response.status_code == 500
    assert "secret" not in response.text
    check_plain(response)


# Many, and slow ones


def test_a_hundred_at_once_are_all_answered(
    jobs_client: httpx.Client, ledger_client: httpx.Client, sealed: Path
) -> None:
    before = snapshot(sealed)
    paths = ["/", *(f"/experiments/{name}" for name in SEALED), "/experiments/unknown"]

    def ask(number: int) -> tuple[str, int]:
        client = (jobs_client, ledger_client)[number % 2]
        path = paths[number % len(paths)]
        return path, client.get(path).status_code

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(ask, range(100)))
    assert {code for path, code in answers if path != "/experiments/unknown"} == {200}
    assert {code for path, code in answers if path == "/experiments/unknown"} == {404}
    assert snapshot(sealed) == before


def connect(client: httpx.Client) -> socket.socket:
    """A bare connection."""
    return socket.create_connection(("127.0.0.1", urlsplit(str(client.base_url)).port or 0), 10)


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_a_client_that_never_ends_its_request_is_left(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_PATIENCE", 0.2)
    app = make_app(DataSource(jobs=(JOBS / JOB,)))
    with serving(app) as address, httpx.Client(base_url=address, verify=NO_TLS) as client:
        slow = [connect(client) for _ in range(20)]
        for each in slow:
            each.sendall(said)
        assert client.get("/").status_code == 200
        for each in slow:
            each.settimeout(20)
            assert each.recv(1000) == b""
            each.close()


def test_a_client_that_takes_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PATIENCE", 0.2)
    has_left = threading.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x" * 100_000
                await asyncio.sleep(0)
        finally:
            has_left.set()

    app = make_app(DataSource(jobs=(JOBS / JOB,)))
    app.router.routes.insert(0, Route("/endless", lambda _: StreamingResponse(endless())))
    with (
        serving(app) as address,
        httpx.Client(base_url=address, verify=NO_TLS) as client,
        connect(client) as slow,
    ):
        slow.sendall(b"GET /endless HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert has_left.wait(30)
        assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "said",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 500_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00",
    ],
    ids=["no HTTP", "two hosts", "a long header", "no length", "TLS"],
)
def test_what_is_no_request_is_refused(jobs_client: httpx.Client, said: bytes) -> None:
    with connect(jobs_client) as connection:
        connection.sendall(said)
        answer = connection.recv(20)
    assert answer.startswith(b"HTTP/1.1 400")
