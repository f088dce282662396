"""Connections to providers.

httpx keeps the pool, HTTP, and the use of TLS and proxies. The bytes are read and written here,
because its own way through anyio takes a third of the gateway's time for a chunk.
"""

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any, Final, cast, override
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=200)
# A provider that sends faster than its client reads is kept waiting from here on.
_MOST_UNREAD: Final = 1 << 16
# RFC 8305: how long a first address of a host is tried alone.
_NEXT_ADDRESS_SEC: Final = 0.25

type _SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)


class Connections(httpx.AsyncBaseTransport):
    """Connections to providers, through the host's proxies if its variables name some."""

    def __init__(self) -> None:
        self._direct = _Pool()
        proxies = getproxies()
        urls = {scheme: proxies.get(scheme) or proxies.get("all") for scheme in ("http", "https")}
        self._proxied = {scheme: _Pool(url) for scheme, url in urls.items() if url}

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        proxied = self._proxied.get(request.url.scheme)
        if proxied is None or proxy_bypass(request.url.host):
            return await self._direct.handle_async_request(request)
        return await proxied.handle_async_request(request)

    @override
    async def aclose(self) -> None:
        for pool in (self._direct, *self._proxied.values()):
            await pool.aclose()


class _Pool(httpx.AsyncHTTPTransport):
    def __init__(self, proxy: str | None = None) -> None:
        super().__init__(limits=_LIMITS, proxy=proxy)
        # httpcore has a parameter for it, which httpx does not pass on.
        self._pool._network_backend = _Network()  # noqa: SLF001


class _Network(httpcore.AsyncNetworkBackend):
    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> "_Stream":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, stream = await loop.create_connection(
                    _Stream, host, port, happy_eyeballs_delay=_NEXT_ADDRESS_SEC
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return stream

    @override
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """The bytes of one connection, for one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread = b""
        self._is_ended = False
        """Whether nothing more will come."""
        self._error: Exception | None = None
        self._is_full = False
        """Whether the provider reads more slowly than is written."""
        self._waiting: asyncio.Future[None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        self._unread += data
        if len(self._unread) > _MOST_UNREAD:
            self._transport.pause_reading()
        self._wake()

    @override
    def eof_received(self) -> None:
        self._is_ended = True
        self._wake()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ended, self._error = True, exc
        self._wake()

    @override
    def pause_writing(self) -> None:
        self._is_full = True

    @override
    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    @override
    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while not self._unread and not self._is_ended:
            await self._wait(timeout, httpcore.ReadTimeout())
        if not self._unread and self._error is not None:
            raise httpcore.ReadError(str(self._error)) from self._error
        data, self._unread = self._unread[:max_bytes], self._unread[max_bytes:]
        if not self._unread:
            self._transport.resume_reading()
        return data

    @override
    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._transport.is_closing():
            raise httpcore.WriteError(str(self._error or "the provider closed the connection"))
        self._transport.write(buffer)
        while self._is_full and not self._is_ended:
            await self._wait(timeout, httpcore.WriteTimeout())

    @override
    async def aclose(self) -> None:
        # Not close: that would wait for a provider that does not read.
        self._transport.abort()

    @override
    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> "_Stream":
        try:
            async with asyncio.timeout(timeout):
                transport = await self._loop.start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        self._transport = cast("asyncio.Transport", transport)
        return self

    @override
    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            # What comes while nothing is asked for is no answer: the connection is not used again.
            return self._is_ended or bool(self._unread)
        return self._transport.get_extra_info(info)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _wait(self, seconds: float | None, late: Exception) -> None:
        # For every chunk: asyncio.timeout would take longer.
        waiting = self._waiting = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, _fail, waiting, late)
        try:
            await waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()


def _fail(waiting: asyncio.Future[None], error: Exception) -> None:
    if not waiting.done():
        waiting.set_exception(error)
