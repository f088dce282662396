"""One request to an endpoint: an answer, or how it failed. Whether to try again is not said here.

No redirect is followed, so that the key goes nowhere else; a proxy of the usual variables is used.
An answer is read no further than 32 MiB, and is not unpacked: a few bytes can hold any number.
"""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx

from proctor.agents.chat.refusals import Failed, clean, find_retry_after, judge_error, judge_refusal
from proctor.agents.chat.settings import Address
from proctor.agents.chat.wire import (
    Answer,
    Completion,
    Function,
    Message,
    ToolCall,
    make_answer,
    make_calls,
    parse_completion,
    parse_spent,
)
from proctor.errors import (
    ModelAnswerError,
    ModelError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from proctor.traces.writer import Redactor
from proctor.trial.clock import SYSTEM, Clock

# An answer that comes in pieces: server-sent events, put together. Nothing here reads a socket
#
# An event that is no completion is an error, and so is a stream that ends before the model has said
# why it stopped: what is there of such an answer may be half a command.


DONE: Final = b"[DONE]"
_DATA: Final = b"data:"
_FIELDS: Final = (_DATA, b"event:", b"id:", b"retry:", b":")


class Lines:
    """Bytes as they come, to lines."""

    def __init__(self) -> None:
        self._begun = bytearray()

    def add(self, data: bytes) -> Iterator[bytes]:
        """The lines that are whole by now."""
        first, *rest = data.split(b"\n")
        self._begun += first
        for line in rest:
            yield bytes(self._begun).removesuffix(b"\r")
            self._begun = bytearray(line)


class Pieces:
    """The pieces of one answer."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._thought_key = Message().thought_key
        self._calls: list[_CallPieces] = []
        self._places: dict[int, _CallPieces] = {}
        """The call that each number stands for."""
        self._finish_reason: str | None = None
        self._model: str | None = None
        self._usage: object = None
        self.is_done = False
        """Whether the endpoint has said that nothing more comes."""

    def add_line(self, line: bytes) -> Completion | None:
        """Take one line of the stream; gives the piece of the answer that was in it.

        Raises:
            ModelAnswerError: it is no line of such a stream, or no piece of an answer.
        """
        if not line.strip():
            return None
        if not line.startswith(_FIELDS):
            shown = line.decode(errors="replace")
            raise ModelAnswerError(f"the stream has no event, but {shown!r}")
        data = line.removeprefix(_DATA).strip()
        if not line.startswith(_DATA) or not data:
            return None
        if data == DONE:
            self.is_done = True
            return None
        piece = parse_completion(data)
        self._add(piece)
        return piece

    def _add(self, piece: Completion) -> None:
        self._model = piece.model or self._model
        self._usage = piece.usage or self._usage
        if not piece.choices:
            return
        choice = piece.choice
        self._finish_reason = choice.finish_reason or self._finish_reason
        said = choice.delta or choice.message or Message()
        self._texts.append(said.text)
        if said.thought:
            self._thoughts.append(said.thought)
            self._thought_key = said.thought_key
        for call in said.tool_calls or ():
            self._add_call(call)

    def _add_call(self, piece: ToolCall) -> None:
        call = self._find_begun(piece)
        if call is None:
            call = _CallPieces()
            self._calls.append(call)
        if piece.index is not None:
            self._places[piece.index] = call
        call.add(piece)

    def _find_begun(self, piece: ToolCall) -> "_CallPieces | None":
        """The call that a piece goes on with; None where it begins one."""
        if piece.index is None:
            # A piece with an id begins a call, one without goes on with the last.
            return self._calls[-1] if self._calls and piece.id is None else None
        call = self._places.get(piece.index)
        # Some endpoints number all calls 0; and some give each piece of a call another id.
        is_named = piece.function is not None and bool(piece.function.name)
        is_other = call is not None and bool(call.id and piece.id) and call.id != piece.id
        return None if is_other and is_named else call

    def finish(self) -> Answer:
        """The answer.

        Raises:
            ModelUnreachableError: the stream ended before it was whole.
            ModelAnswerError: it has more calls than are run.
        """
        if self._finish_reason is None:
            raise ModelUnreachableError("the stream ended before the answer did")
        return Answer(
            text="".join(self._texts),
            reasoning="".join(self._thoughts) or None,
            reasoning_key=self._thought_key,
            calls=make_calls([one.whole for one in self._calls]),
            finish_reason=self._finish_reason,
            model=self._model,
            spent=parse_spent(self._usage),
        )


class _CallPieces:
    """The pieces of one call."""

    def __init__(self) -> None:
        self.id: str | None = None
        self._name: str | None = None
        self._arguments: list[str] = []
        self._extra_content: Any = None

    def add(self, piece: ToolCall) -> None:
        self.id = self.id or piece.id
        function = piece.function or Function()
        self._name = self._name or function.name
        self._extra_content = self._extra_content or piece.extra_content
        if isinstance(function.arguments, str):
            self._arguments.append(function.arguments)
        elif function.arguments:
            self._arguments.append(json.dumps(function.arguments))

    @property
    def whole(self) -> ToolCall:
        function = Function(self._name, "".join(self._arguments))
        return ToolCall(self.id, function=function, extra_content=self._extra_content)


LARGEST: Final = 32 << 20
"""Bytes of an answer that are read."""
_LARGEST_REFUSAL: Final = 64 << 10
_OK: Final = 200
_STREAM: Final = "text/event-stream"
_PACKED: Final = "the answer is packed ({}); expected it plain, as it was asked for"
_TOO_LONG: Final = f"the answer has more than {LARGEST:,} bytes; no more was read"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is asked."""

    client: httpx.AsyncClient
    address: Address
    timeout_sec: float
    """Seconds for one request, its answer included."""
    redactor: Redactor
    """For an endpoint's own words: of these it is not known what they hold."""
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
            said = clean(self.redactor.redact_text(str(error)))
            return Failed(type(error)(said), is_passing=True)
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            # Of what is no HTTP at all, the error shows what came.
            return _judge_breakdown(error, self.redactor.redact_text(find_reason(error)))

    async def _ask(self, body: bytes) -> Answer | Failed:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self.address.key is not None:
            headers["authorization"] = f"Bearer {self.address.key}"
        async with self.client.stream(
            "POST", self.address.url, content=body, headers=headers
        ) as response:
            if response.status_code != _OK:
                return await self._read_refusal(response)
            if packed := _find_packing(response):
                return Failed(ModelAnswerError(_PACKED.format(packed)), is_passing=False)
            if response.headers.get("content-type", "").lower().startswith(_STREAM):
                return await self._read_stream(response)
            data = await _read(response, LARGEST + 1)
        if len(data) > LARGEST:
            return _too_long()
        completion = parse_completion(data)
        return self._find_fault(completion) or make_answer(completion)

    async def _read_refusal(self, response: httpx.Response) -> Failed:
        data = b"" if _find_packing(response) else await _read(response, _LARGEST_REFUSAL)
        # What is shown is cut, and half a secret would not be known as one.
        said, to = (
            self.redactor.redact_text(text)
            for text in (data.decode(errors="replace"), response.headers.get("location", ""))
        )
        failed = judge_refusal(response.status_code, said.encode(), to)
        waits = find_retry_after(response.headers, self.clock.now())
        return Failed(failed.error, failed.is_passing, waits)

    async def _read_stream(self, response: httpx.Response) -> Answer | Failed:
        lines, pieces, n_read = Lines(), Pieces(), 0
        async for data in response.aiter_raw():
            n_read += len(data)
            if n_read > LARGEST:
                return _too_long()
            for line in lines.add(data):
                piece = pieces.add_line(line)
                if piece is not None and (failed := self._find_fault(piece)):
                    return failed
            if pieces.is_done:
                break
        return pieces.finish()

    def _find_fault(self, completion: Completion) -> Failed | None:
        fault = completion.fault
        return None if fault is None else judge_error(self.redactor.redact(fault))


@asynccontextmanager
async def open_endpoint(
    address: Address, timeout_sec: float, redactor: Redactor, clock: Clock
) -> AsyncIterator[Endpoint]:
    """An endpoint whose connections are closed afterwards.

    Raises:
        ModelRequestError: the variables for proxies or certificates cannot be used.
    """
    async with _make_client(address) as client:
        yield Endpoint(client, address, timeout_sec, redactor, clock)


def _make_client(address: Address) -> httpx.AsyncClient:
    # The time for a request is kept by `ask`, as a whole.
    never = httpx.Timeout(None)
    try:
        return httpx.AsyncClient(timeout=never, follow_redirects=False)
    except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
        raise ModelRequestError(
            f"{address.shown}: cannot be asked: {clean(str(error))}; are the variables for proxies "
            "(such as ALL_PROXY) and certificates (such as SSL_CERT_FILE) right?"
        ) from error


def _find_packing(response: httpx.Response) -> str | None:
    """How a body is packed although it was asked for plain; None where it is not."""
    packing = response.headers.get("content-encoding", "").strip().lower()
    return None if packing in ("", "identity") else clean(packing)


async def _read(response: httpx.Response, most: int) -> bytes:
    """The bytes of a response, no more than so many."""
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) >= most:
            break
    return bytes(data[:most])


def _too_long() -> Failed:
    # Another one would have to be paid for as well.
    return Failed(ModelAnswerError(_TOO_LONG), is_passing=False)


def _judge_breakdown(error: Exception, said: str) -> Failed:
    """What it means that there was no connection, or that it broke off."""
    reason = clean(said) or type(error).__name__
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.InvalidURL):
        return Failed(ModelRequestError(f"cannot be asked: {reason}"), is_passing=False)
    if isinstance(error, httpx.ConnectError):
        said = f"no connection: {reason}; is the endpoint up, and base_url right?"
        # A certificate that is not trusted now will not be in a minute.
        return Failed(ModelUnreachableError(said), "CERTIFICATE_VERIFY_FAILED" not in reason)
    return Failed(ModelUnreachableError(f"the connection broke off: {reason}"), is_passing=True)


def find_reason(error: BaseException) -> str:
    """The system's own words, which stand at the end of a chain of errors that say less."""
    link: BaseException | None = error
    while link is not None:
        # An error of TLS has a number too, which is none of the system's.
        if isinstance(link, OSError) and not isinstance(link, ssl.SSLError) and link.errno:
            return os.strerror(link.errno) if link.errno > 0 else str(link.strerror)
        link = link.__cause__ or link.__context__
    return str(error)
