"""The model gateway: what it adds to a request and to a chunk, and 200 trials that stream at once.

The same client asks a scripted model straight and through the gateway; all three are processes of
their own. What is delivered and what is recorded must be what the model sent, to the byte.
"""

import asyncio
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.bench import Bench, check_same
from benchmarks.model_server import DONE, make_event
from benchmarks.row import Row, share_of
from benchmarks.viewers import running
from proctor.digest import sha256_hex
from proctor.gateway.recording import read_calls

_PATH = "/v1/chat/completions"
_MODEL = "the model asked straight"
_REQUEST_SEC = 0.002
_CHUNK_SEC = 0.0002
# An agent does something with an answer before it asks again; the gateway records meanwhile.
_ACT_SEC = 0.005
_MESSAGES = [{"role": "user", "content": "What does this function do? " * 20}]


@dataclass(frozen=True, slots=True)
class Way:
    """A way to the model."""

    address: str
    tokens: list[str]


class Line:
    """A connection over which one request after another is answered."""

    def __init__(self, way: Way, number: int) -> None:
        self._url, self._token = urlsplit(way.address), way.tokens[number % len(way.tokens)]
        self._number = number

    async def open(self) -> None:
        """Connect."""
        host, port = self._url.hostname, self._url.port
        self._reader, self._writer = await asyncio.open_connection(host, port)

    def close(self) -> None:
        """End the connection."""
        self._writer.close()

    async def _ask(self, more: dict[str, object]) -> bytes:
        """Send a request; returns the head of the answer."""
        body = json.dumps({"model": "gpt-4o", "messages": _MESSAGES, **more}).encode()
        head = (
            f"POST {self._url.path}{_PATH} HTTP/1.1\r\nhost: {self._url.netloc}\r\n"
            f"authorization: Bearer {self._token}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        return (await self._reader.readuntil(b"\r\n\r\n")).lower()

    async def seconds(self) -> float:
        """How long an answer takes, to its last byte; a moment after the one before."""
        await asyncio.sleep(_ACT_SEC)
        start = time.perf_counter()
        head = await self._ask({})
        await self._reader.readexactly(int(head.split(b"content-length:")[1].split()[0]))
        return time.perf_counter() - start

    async def stream(
        self, n_chunks: int, every: float, *, is_stamped: bool = False
    ) -> tuple[bytes, list[float]]:
        """Return a streamed answer, and the time that each chunk took to arrive if stamped."""
        more = {"n_chunks": n_chunks, "every": every, "number": self._number}
        await self._ask({"stream": True, "is_stamped": is_stamped, **more})
        parts, delays = [], []
        while size := int(await self._reader.readline(), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
            now = time.perf_counter()
            if is_stamped and b'"stamp"' in parts[-1]:
                delays.append(now - float(parts[-1].split(b'"stamp": ')[1].split(b",")[0]))
        await self._reader.readline()
        return b"".join(parts), delays


def gateway_rows(
    bench: Bench, *, requests: int = 100, chunks: int = 100, streams: int = 200, every: float = 0.04
) -> Iterator[Row]:
    """The rows of the gateway."""
    with tempfile.TemporaryDirectory() as made, both(Path(made), streams) as (through, straight):
        ways = through, straight
        asked = bench.least(*(lambda way=way: _median_seconds(way, requests) for way in ways))
        yield share_of("gateway-latency", asked, _MODEL, at_most=1.5)
        added = max(asked[0] - asked[1], 1e-9)
        yield share_of("gateway-latency-added", (added, _REQUEST_SEC), "2 ms", at_most=1)
        delays = bench.least(*(lambda way=way: _median_delay(way, chunks) for way in ways))
        added = max(delays[0] - delays[1], 1e-9)
        yield share_of("gateway-chunk-added", (added, _CHUNK_SEC), "0.2 ms", at_most=1)
        all_at_once = bench.least(
            *(lambda way=way: _stream_seconds(way, streams, chunks, every) for way in ways),
            rounds=3,
        )
        _check_recorded(Path(made), streams, chunks)
        yield share_of(f"gateway-stream-{streams}", all_at_once, _MODEL, at_most=1.5)


@contextlib.contextmanager
def both(directory: Path, n_trials: int) -> Iterator[tuple[Way, Way]]:
    """The way through the gateway, and the straight one."""
    with running(["-m", "benchmarks.model_server"]) as (model, _):
        address = str(model["address"])
        words = ["-m", "benchmarks.gateway_process", address, str(directory), str(n_trials)]
        with running(words) as (gateway, _):
            tokens = gateway["tokens"]
            if not isinstance(tokens, list):
                raise TypeError("the gateway names no tokens")
            yield Way(str(gateway["address"]), tokens), Way(address, ["none"])


def _median_seconds(way: Way, n_requests: int) -> float:
    async def ask() -> float:
        line = Line(way, 0)
        await line.open()
        # The first ones open connections and load prices.
        taken = [await line.seconds() for _ in range(n_requests + 3)]
        line.close()
        return statistics.median(taken[3:])

    return asyncio.run(ask())


def _median_delay(way: Way, n_chunks: int) -> float:
    async def ask() -> float:
        line = Line(way, 0)
        await line.open()
        _, delays = await line.stream(n_chunks, 0.002, is_stamped=True)
        line.close()
        return statistics.median(delays)

    return asyncio.run(ask())


def _stream_seconds(way: Way, n_streams: int, n_chunks: int, every: float) -> float:
    async def ask() -> tuple[float, list[str]]:
        lines = [Line(way, number) for number in range(n_streams)]
        for line in lines:
            await line.open()
        start = time.perf_counter()
        answers = await asyncio.gather(*(line.stream(n_chunks, every) for line in lines))
        taken = time.perf_counter() - start
        for line in lines:
            line.close()
        return taken, [sha256_hex(body) for body, _ in answers]

    taken, digests = asyncio.run(ask())
    check_same("streamed bytes", digests, [_digest(n, n_chunks) for n in range(n_streams)])
    return taken


def _digest(stream: int, n_chunks: int) -> str:
    events = [make_event(stream, number) for number in range(n_chunks)]
    return sha256_hex(b"".join([*events, DONE]))


def _check_recorded(directory: Path, n_streams: int, n_chunks: int) -> None:
    for number in range(n_streams):
        *_, last = read_calls(str(directory / str(number) / "model-calls.jsonl"))
        events = last.response.split(b"\n\n")
        kept = b"\n\n".join(each for each in events if b'"choices":[]' not in each)
        check_same("recorded bytes", sha256_hex(kept), _digest(number, n_chunks))
