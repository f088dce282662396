"""A provider for tests that answers with bytes as given, at its own pace, or not at all."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

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


async def until(is_so: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)
