"""Clients that send slowly: those that go on are answered, the others are cut off."""

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from proctor.serve.app import Front
from proctor.serve.serving import ServeOptions, prepare
from proctor.web import server
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from proctor.web.server import PatientProtocol, Tls, make_server
from tests.ledger.ledgers import small
from tests.serve.servers import home_variables, make_certificate

PATIENCE_SEC = 0.3


@dataclass(frozen=True, slots=True)
class Served:
    """A server in this process, and a token that may write."""

    port: int
    token: str
    context: ssl.SSLContext


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that tests of this file share."""
    top = tmp_path_factory.mktemp("served")
    options = ServeOptions(directory=small(top), host="127.0.0.1", port=0, key_file=top / "key")
    prepared, tls = prepare(options, home_variables(top)), Tls(*make_certificate(top))
    token = prepared.served.tokens.add("node", may_write=True, experiments=())
    viewer = make_app(DataSource(ledger=options.directory), hosts=None)
    running = make_server(viewer, front=Front(prepared.served, viewer), tls=tls)
    listening = prepared._listening
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    context = ssl.create_default_context(cafile=tls.certificate)
    yield Served(listening.getsockname()[1], token, context)
    running.end()
    thread.join(20)
    prepared.served.writer.close()
    listening.close()


def head_of(token: str, length: int) -> bytes:
    return (
        f"POST /artifacts HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
        f"content-length: {length}\r\n\r\n"
    ).encode()


def is_cut_off(served: Served, begin: bytes, more: bytes) -> bool:
    """Whether the server ends a connection on which there is always a little more."""
    raw = socket.create_connection(("127.0.0.1", served.port), 10)
    with served.context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
        connection.sendall(begin)
        connection.settimeout(PATIENCE_SEC / 10)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                connection.sendall(more)
                return connection.recv(1000) == b""
            except TimeoutError:
                continue
            except OSError:
                return True
    return False


@pytest.mark.parametrize("more", [b"", b"x"], ids=["stalls", "trickles"])
@pytest.mark.parametrize("is_in_body", [False, True], ids=["head", "body"])
def test_a_client_that_hardly_goes_on_is_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch, is_in_body: bool, more: bytes
) -> None:
    monkeypatch.setattr(server, "_PATIENCE", PATIENCE_SEC)
    begin = head_of(served.token, 100_000)
    assert is_cut_off(served, begin if is_in_body else begin[:-2] + b"more: ", more)


class Line(asyncio.Transport):
    """The server's end of a connection that is not there."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.is_cut = True

    def write(self, data: Any) -> None:
        """Nobody reads it."""

    def is_closing(self) -> bool:
        return self.is_cut

    def close(self) -> None:
        """There is nothing to close."""

    def pause_reading(self) -> None:
        """Nothing is read."""

    def resume_reading(self) -> None:
        """Nothing is read."""


async def _take(_scope: Scope, receive: Receive, send: Send) -> None:
    """An application that reads the whole request."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


def is_cut_after(*between: bytes) -> bool:
    """Whether a connection is cut on which this comes, with a check after each."""

    async def receive() -> bool:
        config = Config(_take, http=PatientProtocol, ws="none")
        protocol, line = PatientProtocol(config, ServerState(), {}), Line()
        protocol.connection_made(line)
        for data in between:
            protocol.data_received(data)
            # The application takes it.
            for _ in range(10):
                await asyncio.sleep(0)
            assert protocol._look is not None
            protocol._look.cancel()
            protocol._look_again()
            if line.is_cut:
                return True
        protocol.connection_lost(None)
        return False

    return asyncio.run(receive())


def test_a_slow_client_that_goes_on_is_not_cut_off() -> None:
    begin, piece = head_of("any", 1_000_000), bytes(int(server._SLOWEST * server._PATIENCE))
    assert not is_cut_after(begin, *[piece] * 20)
    assert is_cut_after(begin, *[piece[:-1]] * 2)
    assert is_cut_after(begin, *[piece] * 20, b"x")


def test_two_requests_that_are_incomplete_are_not_one_that_is() -> None:
    begin, end = head_of("any", 10)[:-2], b"\r\n" + bytes(10)
    assert not is_cut_after(begin, *[end + begin] * 5)
    assert is_cut_after(begin, end + begin, b"x: y")
    body = head_of("any", 10) + b"x"
    assert not is_cut_after(body, *[bytes(9) + body] * 5)
    assert is_cut_after(body, b"x")
