"""The HTTP server: one process, on loopback, until interrupted."""

import contextlib
import signal
import socket
import ssl
import threading
from asyncio import BaseTransport, TimerHandle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from proctor.errors import InputError

HOST = "127.0.0.1"
# Backlog of connections waiting to be accepted.
_WAITING = 512
# Most concurrent connections; further ones get a 503.
_MOST = 400
# Seconds within which a client must make progress sending its request or reading the answer.
_PATIENCE = 15.0
# Bytes a second that a client must send of a request.
_SLOWEST = 1024


def listen(port: int, host: str = HOST) -> socket.socket:
    """Open a listening socket on this machine; port 0 selects a free one.

    Raises:
        InputError: the port is taken, or may not be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY, which sends small answers at once, only if the protocol is given.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # Lets the viewer restart at once while old connections are in TIME_WAIT.
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(_WAITING)
    except OSError as error:
        found.close()
        raise InputError(
            f"port {port} of {host} cannot be used: {error.strerror}; --port 0 picks a free one"
        ) from error
    return found


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate, and its key."""

    certificate: Path
    key: Path

    def check(self) -> None:
        """Check that they can be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with _named(self.certificate, "a certificate in PEM form"):
            context.load_verify_locations(self.certificate)
        what = f"the private key of {self.certificate}, in PEM form and without a passphrase"
        with _named(self.key, what):
            # An empty passphrase, because OpenSSL would ask the terminal for one.
            context.load_cert_chain(self.certificate, self.key, password="")


@contextlib.contextmanager
def _named(path: Path, expected: str) -> Iterator[None]:
    """Name the file in OpenSSL's errors, which do not."""
    try:
        with path.open("rb"):
            yield
    except ssl.SSLError as error:
        reason = f" ({error.reason})" if error.reason else ""
        raise InputError(f"{path}: not {expected}{reason}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error


def serve(
    app: Starlette,
    listening: socket.socket,
    *,
    front: ASGIApp | None = None,
    tls: Tls | None = None,
) -> None:
    """Serve until interrupted; running requests get a moment to end.

    `front` gets the requests first, if it is given.
    """
    server = make_server(app, front=front, tls=tls)
    threading.Thread(target=app.state.source.prepare, name="prepare", daemon=True).start()
    with _ended_by_signals(server):
        server.run(sockets=[listening])


def make_server(
    app: Starlette, *, front: ASGIApp | None = None, tls: Tls | None = None
) -> "ViewerServer":
    """Make the server of an app; the caller provides its socket."""
    config = uvicorn.Config(
        front or app,
        loop="asyncio",
        http=PatientProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        # Forwarded-For headers could be forged; there is no proxy in front.
        proxy_headers=False,
        limit_concurrency=_MOST,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    return ViewerServer(config, app)


class ViewerServer(uvicorn.Server):
    """A server that ends its event streams when it shuts down."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._app = app

    def end(self, *_: int | FrameType | None) -> None:
        """Shut down; immediately on a second call."""
        # Event streams never end by themselves and would hold up the shutdown.
        self._app.state.listeners.is_closing = True
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: uvicorn would re-raise the interrupt, the normal way to exit here."""
        yield


@contextlib.contextmanager
def _ended_by_signals(server: ViewerServer) -> Iterator[None]:
    before = {each: signal.signal(each, server.end) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class PatientProtocol(H11Protocol):
    """HTTP with a limit on slow clients, checked periodically.

    Closes a connection if, between two checks, the client has sent little of the same request, and
    has not completed it, or has not read any of a pending answer.
    """

    _look: TimerHandle | None = None
    _received = 0
    _before: tuple[object, int] = (None, 0)

    def connection_made(self, transport: BaseTransport) -> None:
        """Start checking."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._look = self.loop.call_later(_PATIENCE, self._look_again)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop checking."""
        super().connection_lost(exc)
        if self._look is not None:
            self._look.cancel()

    def data_received(self, data: bytes) -> None:
        """Count what the client sends."""
        self._received += len(data)
        super().data_received(data)

    def _look_again(self) -> None:
        transport: Any = self.transport
        incomplete, waiting = self._find_incomplete(), transport.get_write_buffer_size()
        sent_little = self._received < _SLOWEST * _PATIENCE and incomplete == self._before[0]
        read_nothing = waiting == self._before[1]
        if (incomplete and sent_little) or (waiting and read_nothing):
            # Not close(), which would wait until the client has read the answer.
            transport.abort()
            return
        self._before, self._received = (incomplete, waiting), 0
        self._look = self.loop.call_later(_PATIENCE, self._look_again)

    def _find_incomplete(self) -> tuple[object, object] | None:
        """What identifies the request that is incomplete; a new connection has to send one."""
        state = self.conn.their_state
        # None until the first request has a head.
        last: object = self.cycle
        is_begun = last is None or bool(self.conn.trailing_data[0])
        is_incomplete = is_begun if state is h11.IDLE else state is h11.SEND_BODY
        return (last, state) if is_incomplete else None
