"""Sends one request to an endpoint; returns an answer or a failure. Does not retry.

Redirects are not followed, so the key is sent to no other host; the usual proxy variables are
respected. At most 32 MiB of an answer are read, and compressed answers are rejected, because a few
bytes can decompress to any size.
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

from proctor.agents.chat.refusals import Failed, clean, judge_error, judge_refusal
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
)
from proctor.backoff import find_retry_after
from proctor.errors import (
    ModelAnswerError,
    ModelError,
    ModelRequestError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from proctor.record.chat_usage import parse_spent
from proctor.traces.writer import Redactor
from proctor.trial.clock import SYSTEM, Clock

# Streamed answers: assembles server-sent events
#
# An event that is not a completion is an error, and so is a stream that ends without a finish
# reason: such an answer may contain half a command.


DONE: Final = b"[DONE]"
_DATA: Final = b"data:"
# Fields of server-sent events; a line that begins with a colon is a comment, often a keep-alive.
_FIELDS: Final = (_DATA, b"event:", b"id:", b"retry:", b":")


class Lines:
    """Splits a stream of bytes into lines."""

    def __init__(self) -> None:
        self._partial = bytearray()

    def add(self, data: bytes) -> Iterator[bytes]:
        """Add bytes; yield the lines they complete."""
        first, *rest = data.split(b"\n")
        self._partial += first
        for line in rest:
            yield bytes(self._partial).removesuffix(b"\r")
            self._partial = bytearray(line)


class Pieces:
    """Assembles one answer from its pieces."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._thought_key = Message().thought_key
        self._calls: list[_CallPieces] = []
        # The call of each index.
        self._places: dict[int, _CallPieces] = {}
        self._finish_reason: str | None = None
        self._model: str | None = None
        self._usage: object = None
        # Whether the endpoint has sent [DONE].
        self.is_done = False

    def add_line(self, line: bytes) -> Completion | None:
        """Add one line of the stream; return the piece of the answer in it, if any.

        Raises:
            ModelAnswerError: it is not a server-sent event, or not a piece of an answer.
        """
        if not line.strip():
            return None
        if not line.startswith(_FIELDS):
            shown = line.decode(errors="replace")
            raise ModelAnswerError(f"the stream contains {shown!r}; expected an event")
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
        """Return the call that a piece continues, or None if it begins one."""
        if piece.index is None:
            # Without an index, a piece with an id begins a call, and others continue the last one.
            return self._calls[-1] if self._calls and piece.id is None else None
        call = self._places.get(piece.index)
        # Some endpoints give all calls the index 0; others give each piece of a call a new id.
        # Only a piece with both a new id and a name begins a new call.
        is_named = piece.function is not None and bool(piece.function.name)
        is_other = call is not None and bool(call.id and piece.id) and call.id != piece.id
        return None if is_other and is_named else call

    def finish(self) -> Answer:
        """Return the assembled answer.

        Raises:
            ModelUnreachableError: the stream ended before the answer was complete.
            ModelAnswerError: it has too many calls.
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
    """Assembles one call from its pieces."""

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
"""Largest answer that is read, in bytes."""
_LARGEST_REFUSAL: Final = 64 << 10
_OK: Final = 200
_STREAM: Final = "text/event-stream"
_SHOULD_RETRY: Final = "x-should-retry"
_COMPRESSED: Final = "the answer is compressed ({}), although the request accepts only plain ones"
_TOO_LONG: Final = f"the answer has more than {LARGEST:,} bytes; the rest was not read"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A chat completions endpoint."""

    client: httpx.AsyncClient
    address: Address
    timeout_sec: float
    """Timeout of one request, answer included, in seconds."""
    redactor: Redactor
    """Redacts the endpoint's messages, which may quote the key."""
    clock: Clock = SYSTEM

    async def ask(self, body: bytes) -> Answer | Failed:
        """Send one request and return its answer, or how it failed."""
        try:
            async with asyncio.timeout(self.timeout_sec):
                return await self._ask(body)
        except TimeoutError:
            said = f"no complete answer after {self.timeout_sec:g} s (request_timeout_sec)"
            return Failed(ModelTimeoutError(said), is_passing=True)
        except ModelError as error:
            said = clean(self.redactor.redact_text(str(error)))
            return Failed(type(error)(said), is_passing=True)
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            # If the response is not HTTP at all, the error quotes it.
            return _judge_breakdown(error, self.redactor.redact_text(find_reason(error)))

    async def _ask(self, body: bytes) -> Answer | Failed:
        # Without accept-encoding, httpx would ask for compressed answers.
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self.address.key is not None:
            headers["authorization"] = f"Bearer {self.address.key}"
        async with self.client.stream(
            "POST", self.address.url, content=body, headers=headers
        ) as response:
            if response.status_code != _OK:
                return await self._read_refusal(response)
            if encoding := _find_compression(response):
                return Failed(ModelAnswerError(_COMPRESSED.format(encoding)), is_passing=False)
            if response.headers.get("content-type", "").lower().startswith(_STREAM):
                return await self._read_stream(response)
            data = await _read(response, LARGEST + 1)
        if len(data) > LARGEST:
            return _too_long()
        completion = parse_completion(data)
        return self._find_fault(completion) or make_answer(completion)

    async def _read_refusal(self, response: httpx.Response) -> Failed:
        data = b"" if _find_compression(response) else await _read(response, _LARGEST_REFUSAL)
        # Redact before the text is cut for display: half a secret would not be recognized.
        said, to = (
            self.redactor.redact_text(text)
            for text in (data.decode(errors="replace"), response.headers.get("location", ""))
        )
        failed = judge_refusal(response.status_code, said.encode(), to)
        waits = find_retry_after(response.headers, self.clock.now())
        # The model gateway has retried already, and so has an endpoint that says so.
        may_pass = failed.is_passing and response.headers.get(_SHOULD_RETRY) != "false"
        return Failed(failed.error, may_pass, waits)

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
    """Open an endpoint; its connections are closed afterwards."""
    async with _make_client(address) as client:
        yield Endpoint(client, address, timeout_sec, redactor, clock)


def _make_client(address: Address) -> httpx.AsyncClient:
    # `ask` limits the request as a whole; httpx would limit each of its phases separately.
    never = httpx.Timeout(None)
    try:
        return httpx.AsyncClient(timeout=never, follow_redirects=False)
    except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
        raise ModelRequestError(
            f"{address.shown}: cannot be requested: {clean(str(error))}; are the variables for "
            "proxies (such as ALL_PROXY) and certificates (such as SSL_CERT_FILE) right?"
        ) from error


def _find_compression(response: httpx.Response) -> str | None:
    """Return the content encoding of a compressed body; None if it is plain."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    return None if encoding in ("", "identity") else clean(encoding)


async def _read(response: httpx.Response, most: int) -> bytes:
    """Read at most `most` bytes of a response."""
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) >= most:
            break
    return bytes(data[:most])


def _too_long() -> Failed:
    # Not retried: another answer as long would have to be paid for as well.
    return Failed(ModelAnswerError(_TOO_LONG), is_passing=False)


def _judge_breakdown(error: Exception, said: str) -> Failed:
    """Return the failure for a connection that was refused or broke off."""
    reason = clean(said) or type(error).__name__
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.InvalidURL):
        return Failed(ModelRequestError(f"cannot be requested: {reason}"), is_passing=False)
    if isinstance(error, httpx.ConnectError):
        said = f"no connection: {reason}; is the endpoint up, and base_url right?"
        # Retrying does not help with an untrusted certificate.
        return Failed(ModelUnreachableError(said), "CERTIFICATE_VERIFY_FAILED" not in reason)
    return Failed(
        ModelUnreachableError(f"the connection was interrupted: {reason}"), is_passing=True
    )


def find_reason(error: BaseException) -> str:
    """Return the operating system's message, from the end of httpx's chain of exceptions."""
    link: BaseException | None = error
    while link is not None:
        # TLS errors have an errno too, but it is not one of the operating system's.
        if isinstance(link, OSError) and not isinstance(link, ssl.SSLError) and link.errno:
            return os.strerror(link.errno) if link.errno > 0 else str(link.strerror)
        link = link.__cause__ or link.__context__
    return str(error)
