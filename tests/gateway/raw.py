"""A provider for tests that answers with bytes as given, at its own pace, or not at all."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from tests.gateway.conftest import Opened, OpenIt
from tests.gateway.providers import Provider

type Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]

CHAT = "/openai/v1/chat/completions"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Raw:
    """A running provider."""

    answer: Answer
    asked: list[bytes] = field(default_factory=list)
    """Requests as they came, head and body."""
    serving: set[asyncio.Task[None]] = field(default_factory=set)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until it ends, or the provider is closed."""
        self.writers.append(writer)
        task = asyncio.create_task(self.serve(reader, writer))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                sizes = [line for line in head.lower().split(b"\r\n") if b"content-length:" in line]
                assert len(sizes) <= 1
                assert b"transfer-encoding" not in head.lower()
                body = await reader.readexactly(int(sizes[0].split(b":")[1]) if sizes else 0)
                self.asked.append(head + body)
                await self.answer(writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def says(data: bytes, *, is_closed: bool = False) -> Answer:
    """Answer with these bytes."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        if is_closed:
            writer.close()

    return answer


def sized(body: bytes, *headers: bytes) -> bytes:
    """Return a whole answer."""
    lines = [*headers, b"Content-Length: " + str(len(body)).encode()]
    return HEAD + b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(*chunks: bytes) -> bytes:
    """Return a whole answer that is a stream."""
    parts = [f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks]
    return SSE + b"".join(parts) + b"0\r\n\r\n"


async def hang(_: asyncio.StreamWriter) -> None:
    """Answer nothing."""
    await asyncio.Event().wait()


@asynccontextmanager
async def opened_raw(
    opened: OpenIt, provider: Provider, answer: Answer, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Opened, Raw]]:
    """Open a gateway in front of such a provider; requests are not retried."""
    raw = Raw(answer)
    server = await asyncio.start_server(raw.accept, "127.0.0.1", 0, ssl=tls)
    provider.scheme = "http" if tls is None else "https"
    provider.port = server.sockets[0].getsockname()[1]
    try:
        async with opened() as at:
            at.account.n_retries = 0
            yield at, raw
    finally:
        server.close()
        for task in raw.serving:
            task.cancel()
        await asyncio.gather(*raw.serving, return_exceptions=True)
        for writer in raw.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def post(at: Opened, body: bytes = b"{}", path: str = CHAT) -> httpx.Response:
    """Ask through the gateway."""
    async with httpx.AsyncClient(timeout=20) as client:
        url, key = f"http://127.0.0.1:{at.gateway.port}{path}", at.account.token
        return await client.post(url, content=body, headers={"authorization": f"Bearer {key}"})


def make_request(
    at: Opened, line: str = f"POST {CHAT}", body: bytes = b"{}", *more: bytes
) -> bytes:
    """Return the bytes of a request with the account's token."""
    lines = [
        f"{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {at.account.token}".encode(),
        *more,
        f"Content-Length: {len(body)}".encode(),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def talk(at: Opened, data: bytes, *, seconds: float = 5.0) -> bytes:
    """Send bytes to the gateway; returns what it says until it closes, or the time is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", at.gateway.port)
    said = bytearray()
    try:
        async with asyncio.timeout(seconds):
            writer.write(data)
            while chunk := await reader.read(1 << 16):
                said += chunk
                if b"\r\n\r\n" in said and seconds > 1:
                    break
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return bytes(said)


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)
