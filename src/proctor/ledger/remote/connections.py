"""HTTP(S) connections to one server, used again for several requests.

Not through proxies, which would see the token; redirects are not followed, because they could lead
to another server.
"""

import contextlib
import io
import os
import select
import socket
import ssl
import time
import weakref
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, cast
from urllib.parse import quote, urlsplit

import certifi

from proctor.errors import LedgerError
from proctor.sentence import without_number

_CONNECT_SEC = 5.0
_ANSWER_SEC = 30.0
_CHUNK = 1 << 20
# Seconds of waiting for a server after which it must have sent so many bytes, again and again.
_WINDOW_SEC = 60.0
_LEAST_BYTES = 4096 * 60
# ValueError: a name of a host that cannot be encoded, a size of a chunk that is none.
_BROKEN = (OSError, HTTPException, ValueError)


class UnreachableError(Exception):
    """The server cannot be reached now; what it would have got can be sent later."""


class _Paced(io.RawIOBase):
    """What a server sends. One that trickles is given up: it would hold its readers for ever."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        # Since the last look. Time that the reader takes for itself does not count.
        self._waited_sec = 0.0
        self._n_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        began = time.monotonic()
        n_bytes: int = self._raw.readinto(buffer)
        self._waited_sec += time.monotonic() - began
        self._n_bytes += n_bytes
        # The end of an answer is never late.
        if n_bytes and self._waited_sec > _WINDOW_SEC:
            if self._n_bytes < _LEAST_BYTES:
                seconds = int(self._waited_sec)
                raise TimeoutError(f"too slow: {self._n_bytes:,} bytes in {seconds} seconds")
            self._waited_sec, self._n_bytes = 0.0, 0
        return n_bytes

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Paced(self.fp.detach()))


class Connections:
    """Connections to the server of an address; threads may share them."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._url = url
        self._is_encrypted = parts.scheme == "https"
        # Always a port: without one, the end of an IPv6 address would be taken for it.
        self._host, self._port = (
            parts.hostname or "",
            parts.port or (443, 80)[not self._is_encrypted],
        )
        self._prefix = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        self._headers = dict(headers)
        self._tls: ssl.SSLContext | None = None
        self._idle: list[HTTPConnection] = []
        # Readers of evidence are not closed.
        weakref.finalize(self, _close_all, self._idle)

    @contextlib.contextmanager
    def ask(self, method: str, path: str, body: bytes | None = None) -> Iterator[HTTPResponse]:
        """Send a request; the answer can be read inside `with`."""
        connection, response = self._send(method, path, body)
        try:
            yield response
        finally:
            # An answer that was not read to its end is in the way of the next one.
            if response.isclosed() and connection.sock is not None:
                self._idle.append(connection)
            else:
                # Both: a response that ends its connection has the socket to itself.
                response.close()
                connection.close()

    def close(self) -> None:
        """Close what is idle; the next request opens another connection."""
        _close_all(self._idle)

    def _send(
        self, method: str, path: str, body: bytes | None
    ) -> tuple[HTTPConnection, HTTPResponse]:
        try:
            if (kept := self._take()) is not None:
                # The server may end it at this very moment. Every request may be sent twice.
                with contextlib.suppress(ConnectionResetError):
                    return self._exchange(kept, method, path, body)
            return self._exchange(self._make(), method, path, body)
        except _BROKEN as error:
            raise UnreachableError(f"{self._url}: {_why(error)}") from error

    def _exchange(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[HTTPConnection, HTTPResponse]:
        try:
            if connection.sock is None:
                connection.connect()
                cast(socket.socket, connection.sock).settimeout(_ANSWER_SEC)
                connection.response_class = _Response
            # A server that refuses a large body answers before it has read it.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, self._prefix + path, body, self._headers)
            return connection, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _take(self) -> HTTPConnection | None:
        """An idle connection, if there is one."""
        with contextlib.suppress(IndexError):
            while True:
                connection = self._idle.pop()
                # Nothing was asked: what can be read is the end of the connection.
                if connection.sock is not None:
                    poll = select.poll()
                    poll.register(connection.sock.fileno(), select.POLLIN)
                    if not poll.poll(0):
                        return connection
                connection.close()
        return None

    def _make(self) -> HTTPConnection:
        if not self._is_encrypted:
            return HTTPConnection(self._host, self._port, timeout=_CONNECT_SEC)
        if self._tls is None:
            # SSL_CERT_FILE names the certificate of a server that signed its own.
            file = os.environ.get("SSL_CERT_FILE")
            try:
                self._tls = ssl.create_default_context(cafile=file or certifi.where())
            except OSError as error:
                raise LedgerError(f"SSL_CERT_FILE={file}: cannot be read: {error}") from error
        return HTTPSConnection(self._host, self._port, timeout=_CONNECT_SEC, context=self._tls)

    def read(self, response: HTTPResponse) -> Iterator[bytes]:
        """The body of an answer in pieces, as it was sent: nothing is decompressed.

        Raises:
            UnreachableError: the connection breaks.
        """
        is_whole = False
        while not is_whole:
            try:
                # Of a chunk, `read` takes as much as the server says, `read1` no more than it is
                # asked for.
                piece = response.read1(_CHUNK) if response.chunked else response.read(_CHUNK)
                is_whole = not piece
                # `read` with a size says nothing of an early end.
                if is_whole and response.length:
                    raise IncompleteRead(b"", response.length)
            except _BROKEN as error:
                raise UnreachableError(f"{self._url}: {_why(error)}") from error
            yield piece


def _close_all(connections: list[HTTPConnection]) -> None:
    with contextlib.suppress(IndexError):
        while True:
            connections.pop().close()


def _why(error: Exception) -> str:
    return without_number(str(error)) or type(error).__name__
