"""One request to an endpoint: an answer, or how it failed. Whether to try again is not said here.

No redirect is followed, so that the key goes nowhere else; a proxy of the usual variables is used.
An answer is read no further than 32 MiB.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx

from proctor.agents.chat.refusals import Failed, clean, find_retry_after, judge_error, judge_refusal
from proctor.agents.chat.settings import Address
from proctor.agents.chat.stream import Lines, Pieces
from proctor.agents.chat.wire import Answer, parse_answer, parse_completion
from proctor.errors import (
    ModelAnswerError,
    ModelError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from proctor.trial.clock import SYSTEM, Clock

LARGEST: Final = 32 << 20
"""Bytes of an answer that are read."""
_LARGEST_REFUSAL: Final = 64 << 10
_OK: Final = 200


_TOO_LONG: Final = f"the answer has more than {LARGEST:,} bytes; no more was read"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked."""

    client: httpx.AsyncClient
    address: Address
    timeout_sec: float
    """Seconds for one request, its answer included."""
    clock: Clock = SYSTEM

    async def ask(self, body: bytes) -> Answer | Failed:
        """Send one request and read its answer."""
        try:
            async with asyncio.timeout(self.timeout_sec):
                return await self._ask(body)
        except TimeoutError:
            said = f"no whole answer after {self.timeout_sec:g} s (request_timeout_sec)"
            return Failed(ModelTimeoutError(said), is_passing=True)
        except ModelError as error:
            return Failed(error, is_passing=True)
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            return _judge_breakdown(error)

    async def _ask(self, body: bytes) -> Answer | Failed:
        # What comes is bounded before it is unpacked, therefore nothing may come packed.
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self.address.key is not None:
            headers["authorization"] = f"Bearer {self.address.key}"
        async with self.client.stream(
            "POST", self.address.url, content=body, headers=headers
        ) as response:
            if response.status_code != _OK:
                said = await _read(response, _LARGEST_REFUSAL)
                failed = judge_refusal(response.status_code, said, response.headers.get("location"))
                waits = find_retry_after(response.headers, self.clock.now())
                return Failed(failed.error, failed.is_passing, waits)
            kind = response.headers.get("content-type", "")
            if kind.startswith("text/event-stream"):
                return await _read_stream(response)
            data = await _read(response, LARGEST + 1)
        if len(data) > LARGEST:
            return _too_long()
        if (error := parse_completion(data).error) is not None:
            return judge_error(error)
        return parse_answer(data)


@asynccontextmanager
async def open_endpoint(
    address: Address, timeout_sec: float, clock: Clock
) -> AsyncIterator[Endpoint]:
    """An endpoint whose connections are closed afterwards."""
    # The time for a request is kept by `ask`, as a whole.
    never = httpx.Timeout(None)
    async with httpx.AsyncClient(timeout=never, follow_redirects=False) as client:
        yield Endpoint(client, address, timeout_sec, clock)


async def _read(response: httpx.Response, most: int) -> bytes:
    """The bytes of a response, no more than so many."""
    data = bytearray()
    async for piece in response.aiter_bytes():
        data += piece
        if len(data) >= most:
            break
    return bytes(data[:most])


async def _read_stream(response: httpx.Response) -> Answer | Failed:
    lines, pieces, n_read = Lines(), Pieces(), 0
    async for data in response.aiter_bytes():
        n_read += len(data)
        if n_read > LARGEST:
            return _too_long()
        for line in lines.add(data):
            piece = pieces.add_line(line)
            if piece is not None and piece.error is not None:
                return judge_error(piece.error)
        if pieces.is_done:
            break
    return pieces.finish()


def _too_long() -> Failed:
    # Another one would have to be paid for as well.
    return Failed(ModelAnswerError(_TOO_LONG), is_passing=False)


def _judge_breakdown(error: Exception) -> Failed:
    """What it means that there was no connection, or that it broke off."""
    reason = clean(_find_reason(error)) or type(error).__name__
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.InvalidURL):
        return Failed(ModelRequestError(f"cannot be asked: {reason}"), is_passing=False)
    if isinstance(error, httpx.ConnectError):
        said = f"no connection: {reason}; is the endpoint up, and base_url right?"
        # A certificate that is not trusted now will not be in a minute.
        return Failed(ModelUnreachableError(said), "CERTIFICATE_VERIFY_FAILED" not in reason)
    return Failed(ModelUnreachableError(f"the connection broke off: {reason}"), is_passing=True)


def _find_reason(error: BaseException) -> str:
    """The system's own words, which stand at the end of a chain of errors that say less."""
    link: BaseException | None = error
    while link is not None:
        # An error of TLS has a number too, which is none of the system's.
        if isinstance(link, OSError) and not isinstance(link, ssl.SSLError) and link.errno:
            return os.strerror(link.errno) if link.errno > 0 else str(link.strerror)
        link = link.__cause__ or link.__context__
    return str(error)
