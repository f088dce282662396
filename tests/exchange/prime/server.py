"""Prime's REST interface on loopback: pages, errors, rate limits, time-outs, and lists that change.

    GET /api/v1/evaluations/ID
    GET /api/v1/evaluations/ID/samples?page=1&limit=100

A request is answered by the next fault that is set for its page, if there is one, else as it should
be. Page 0 stands for the evaluation itself.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

KEY = "prime-key-for-tests"


class Connection(BaseHTTPRequestHandler):
    """One request and its reply."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # one packet for a short reply
    server: "Prime"

    def do_GET(self) -> None:
        """Answer, well or badly."""
        # Who asked may have gone away.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.server.take(self)(self)

    def send(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None, length: int = -1
    ) -> None:
        """A response; another length than the body's makes a promise that is not kept."""
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body) if length < 0 else length))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = length >= 0

    def log_message(self, *_: object) -> None:
        """Say nothing."""


type Reply = Callable[[Connection], None]
type PageModel = Callable[["Prime", int, int], dict[str, Any]]


@dataclass
class Prime(ThreadingHTTPServer):
    """The interface."""

    evaluation: dict[str, Any]
    samples: list[Any]
    model: PageModel
    faults: dict[int, list[Reply]] = field(default_factory=dict)
    before: Callable[[int], None] = lambda _page: None
    """Called with the number of a page before it is made; 0 is the evaluation."""
    asked: list[str] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    """Set at the end: no reply waits any longer."""
    daemon_threads = True

    def __post_init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """Who asked may have gone away; nobody is told."""

    def take(self, connection: Connection) -> Reply:
        with self._lock:
            self.asked.append(connection.path)
            parts = urlsplit(connection.path)
            query = {name: int(values[0]) for name, values in parse_qs(parts.query).items()}
            number = query.get("page", 0)
            if self.faults.get(number):
                return self.faults[number].pop(0)
            if connection.headers["authorization"] != f"Bearer {KEY}":
                return refuses(401, "Invalid API key")
            self.before(number)
            return answers(self._answer(parts.path, number, query.get("limit", 100)))

    def _answer(self, path: str, number: int, limit: int) -> Any:
        own = f"/api/v1/evaluations/{self.evaluation.get('evaluation_id', 'ev1')}"
        if path == own:
            return self.evaluation
        return self.model(self, number, limit) if path == f"{own}/samples" else None


@contextmanager
def serving(
    samples: list[Any], model: PageModel | None = None, **evaluation: Any
) -> Iterator[Prime]:
    """An interface that is up for as long as the block."""
    whole = {"evaluation_id": "ev1", "name": "Nightly", "model_name": "acme/m", **evaluation}
    server = Prime(whole, samples, model or has_more)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


# Models of pages


def _cut(server: Prime, number: int, limit: int) -> list[Any]:
    return server.samples[(number - 1) * limit : number * limit]


def has_more(server: Prime, number: int, limit: int) -> dict[str, Any]:
    """What Prime's own client expects."""
    total = len(server.samples)
    return {
        "samples": _cut(server, number, limit),
        "total": total,
        "page": number,
        "limit": limit,
        "has_more": number * limit < total,
    }


def bare(server: Prime, number: int, limit: int) -> dict[str, Any]:
    """Samples, and no word about others."""
    return {"samples": _cut(server, number, limit)}


def endless(server: Prime, number: int, limit: int) -> dict[str, Any]:
    """The same page for ever."""
    return {"samples": server.samples[:limit], "page": number, "limit": limit, "has_more": True}


# Replies


def answers(value: Any) -> Reply:
    if value is None:
        return refuses(404, "Not found")
    body = json.dumps(value).encode()
    return lambda connection: connection.send(200, body)


def says(body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
    return lambda connection: connection.send(200, body, headers)


def refuses(status: int, detail: str, **headers: str) -> Reply:
    body = json.dumps({"detail": detail}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda connection: connection.send(status, body, named)


def sends_to(place: str, status: int = 307) -> Reply:
    return lambda connection: connection.send(status, b"", {"location": place})


def breaks_off(connection: Connection) -> None:
    connection.send(200, b'{"samples": [', length=1000)


def hangs_up(connection: Connection) -> None:
    connection.close_connection = True


def never_answers(connection: Connection) -> None:
    assert isinstance(connection.server, Prime)
    connection.server.released.wait(60)
    connection.close_connection = True
