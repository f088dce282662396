"""A chat completions endpoint: sends requests, reads answers, and retries what may pass.

Redirects are not followed, so the key is sent to no other host; the usual proxy variables are
respected. At most 32 MiB of an answer are read, and compressed answers are rejected, because a few
bytes can decompress to any size. What an endpoint says is redacted before it is cut for a message:
half a secret would not be recognized.
"""

import asyncio
import json
import logging
import os
import random
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx
import msgspec

from proctor.agents.chat.accounting import Account
from proctor.agents.chat.answers import Answer, Assembly, Object
from proctor.agents.chat.settings import Address
from proctor.backoff import find_retry_after, find_wait
from proctor.errors import (
    ModelAnswerError,
    ModelAuthError,
    ModelContextError,
    ModelError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelRequestError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnreachableError,
)
from proctor.sentence import count_of
from proctor.traces.writer import Redactor
from proctor.trial.clock import SYSTEM, Clock

_LARGEST: Final = 32 << 20
_LARGEST_REFUSAL: Final = 64 << 10
# Fields of server-sent events; a line that begins with a colon is a comment, often a keep-alive.
_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
# Characters of an endpoint's message that an error shows.
_SHOWN: Final = 500
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
# How endpoints report a conversation that exceeds the context window: most have no code for it.
_OVERFLOW = re.compile(
    r"context[ _-]?(length|window|size)|maximum context|prompt is too long|too many (input )?tokens"
    r"|reduce the length|exceed_context_size|input is too long|maximum prompt length"
    r"|exceeds the maximum number of tokens",
    re.IGNORECASE,
)
# "billing" alone does not match: some endpoints use it for rate limits that pass within a minute.
_USED_UP = re.compile(
    r"insufficient_quota|billing_(hard_limit|not_active)|credit balance", re.IGNORECASE
)
# Temporary refusals that are worth a retry, like 429 and everything from 500 on.
_PASSING: Final = frozenset({408, 409, 425})
_TOO_MANY: Final = 429
_REFUSALS: Final[Mapping[int, tuple[type[ModelError], str]]] = {
    401: (ModelAuthError, "; is OPENAI_API_KEY the key of this endpoint?"),
    403: (ModelAuthError, "; may the key of OPENAI_API_KEY use this model?"),
    404: (ModelNotFoundError, "; is base_url right, and the model, which is sent as -m names it?"),
    429: (ModelRateLimitError, "; fewer trials at once (-n) may help, or more --ak retries"),
}


@dataclass(frozen=True, slots=True)
class Pace:
    """Sleep, randomness and clock of a loop, replaceable in tests."""

    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    chance: Callable[[], float] = random.random
    """Random number from 0 to 1."""
    clock: Clock = SYSTEM


class _FailedError(Exception):
    """A request that got no answer, and whether another try may get one."""

    def __init__(
        self, error: ModelError, *, may_pass: bool, retry_after: float | None = None
    ) -> None:
        super().__init__()
        self.error, self.may_pass, self.retry_after = error, may_pass, retry_after


class Endpoint:
    """Asks a model, in the context of an `async with`."""

    def __init__(
        self,
        address: Address,
        account: Account,
        redactor: Redactor,
        pace: Pace,
        logger: logging.Logger,
        *,
        retries: int,
        timeout_sec: float,
    ) -> None:
        """Connect to nothing yet; `timeout_sec` is for one try, answer included.

        Raises:
            ModelRequestError: the variables for proxies or certificates are invalid.
        """
        self.address, self.account, self.pace = address, account, pace
        self._redactor, self._logger = redactor, logger
        self._retries, self._timeout_sec = retries, timeout_sec
        # Without accept-encoding, httpx would ask for compressed answers.
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if address.key is not None:
            headers["authorization"] = f"Bearer {address.key}"
        try:
            # A try is limited as a whole; httpx would limit each of its phases separately.
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(None), follow_redirects=False, headers=headers
            )
        except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
            raise ModelRequestError(
                f"{address.shown}: cannot be requested: {clean(str(error))}; are the variables for "
                "proxies (such as ALL_PROXY) and certificates (such as SSL_CERT_FILE) right?"
            ) from error

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, request: Object) -> Answer:
        """Return the answer to a request, after as many retries as it takes.

        Raises:
            ModelError: there was no answer; the message says how often it was tried.
        """
        # As ASCII, which also escapes lone surrogates in command output.
        body = json.dumps(request, ensure_ascii=True, allow_nan=False).encode()
        shown, n_tries = self.address.shown, 0
        while True:
            n_tries += 1
            try:
                return await self._try(body)
            except _FailedError as failed:
                if not failed.may_pass or n_tries > self._retries:
                    often = f" (asked {count_of(n_tries, 'time')})" if n_tries > 1 else ""
                    raise type(failed.error)(f"{shown}: {failed.error}{often}") from None
                # The wait grows, or is what the endpoint asks for.
                wait = find_wait(failed.retry_after, n_tries, self.pace.chance())
                said = "%s: %s; retrying in %.1f s (%d of %d)"
                self._logger.warning(said, shown, failed.error, wait, n_tries, self._retries)
            self.account.n_retries += 1
            await self.pace.sleep(wait)

    async def _try(self, body: bytes) -> Answer:
        try:
            async with asyncio.timeout(self._timeout_sec):
                return await self._send(body)
        except TimeoutError:
            said = f"no complete answer after {self._timeout_sec:g} s (request_timeout_sec)"
            raise _FailedError(ModelTimeoutError(said), may_pass=True) from None
        except ModelError as error:
            raise _FailedError(type(error)(self._clean(str(error))), may_pass=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
            # If the response is not HTTP at all, the error quotes it.
            reason = self._clean(find_reason(error)) or type(error).__name__
            raise _breakdown(error, reason) from None

    async def _send(self, body: bytes) -> Answer:
        async with self._client.stream("POST", self.address.url, content=body) as response:
            headers, answer = response.headers, Assembly()
            encoding = headers.get("content-encoding", "").strip().lower()
            is_plain = encoding in ("", "identity")
            if response.status_code != httpx.codes.OK:
                data = await _read(response, _LARGEST_REFUSAL) if is_plain else b""
                raise self._refusal(response, data.decode(errors="replace"))
            if not is_plain:
                said = (
                    f"the answer is compressed ({clean(encoding)}), although the request accepts "
                    "only plain ones"
                )
                raise _FailedError(ModelAnswerError(said), may_pass=False)
            if headers.get("content-type", "").lower().startswith("text/event-stream"):
                await self._read_stream(response, answer)
            else:
                data = await _read(response, _LARGEST + 1)
                if len(data) > _LARGEST:
                    raise _too_long()
                self._add(answer, data, is_whole=True)
        return answer.finish()

    async def _read_stream(self, response: httpx.Response, answer: Assembly) -> None:
        async for line in _lines(response):
            if line.strip() and not line.startswith(_FIELDS):
                shown = line.decode(errors="replace")
                raise ModelAnswerError(f"the stream contains {shown!r}; expected an event")
            data = line.removeprefix(b"data:").strip()
            if data == b"[DONE]":
                break
            if data and line.startswith(b"data:"):
                self._add(answer, data, is_whole=False)
        if answer.finish_reason is None:
            # It may contain half a command.
            raise ModelUnreachableError("the stream ended before the answer did")

    def _add(self, answer: Assembly, data: bytes, *, is_whole: bool) -> None:
        fault = answer.add(data, is_whole=is_whole)
        if fault is None:
            return
        # An error object in a response with status 200.
        error = _parse_error(self._redactor.redact(fault))
        if isinstance(error.code, int) and 400 <= error.code < 600:
            raise _judge_refusal(error.code, error)
        text = f"an error instead of an answer: {error.said}"
        if _OVERFLOW.search(f"{error.code} {error.said}"):
            raise _FailedError(ModelContextError(text), may_pass=False)
        raise _FailedError(ModelServerError(text), may_pass=True)

    def _refusal(self, response: httpx.Response, text: str) -> _FailedError:
        status, headers = response.status_code, response.headers
        if 300 <= status < 400:
            to = self._clean(headers.get("location", "")) or "nowhere"
            said = f"HTTP {status}: redirects to {to}; set that as base_url if you trust it"
            return _FailedError(ModelRequestError(said), may_pass=False)
        failed = _judge_refusal(status, _read_error(self._redactor.redact_text(text).encode()))
        # The model gateway has retried already, and so has an endpoint that says so.
        failed.may_pass &= headers.get("x-should-retry") != "false"
        failed.retry_after = find_retry_after(headers, self.pace.clock.now())
        return failed

    def _clean(self, text: str) -> str:
        return clean(self._redactor.redact_text(text))


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Split a stream into lines; the last one counts only if it is complete."""
    n_read, begun = 0, bytearray()
    async for data in response.aiter_raw():
        n_read += len(data)
        if n_read > _LARGEST:
            raise _too_long()
        *ends, rest = data.split(b"\n")
        for end in ends:
            yield bytes(begun + end).removesuffix(b"\r")
            begun.clear()
        begun += rest


async def _read(response: httpx.Response, most: int) -> bytes:
    """Read at most `most` bytes of a response."""
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) >= most:
            break
    return bytes(data[:most])


# Failures


class _Error(msgspec.Struct, frozen=True):
    """The error object of a response."""

    message: Any = None
    code: Any = None
    type: Any = None

    @property
    def said(self) -> str:
        """Its message on one line."""
        return clean(
            str(self.message if self.message is not None else self.code or self.type or "")
        )


class _Body(msgspec.Struct, frozen=True):
    error: Any = None
    message: Any = None
    detail: Any = None


def read_refusal(body: bytes) -> str:
    """Return the message of an error response, on one line."""
    return _read_error(body).said


def _read_error(body: bytes) -> _Error:
    try:
        bodies = msgspec.json.decode(body, type=_Body | tuple[_Body, ...])
    except (msgspec.DecodeError, RecursionError):
        return _Error(body.decode(errors="replace"), "", "")
    # Some endpoints, such as Gemini's, wrap the error in a list.
    found = bodies if isinstance(bodies, _Body) else (*bodies, _Body())[0]
    return _parse_error(found.error or found.message or found.detail)


def _parse_error(error: object) -> _Error:
    try:
        return msgspec.convert(error, _Error)
    except msgspec.ValidationError:
        return _Error(error)


def _judge_refusal(status: int, error: _Error) -> _FailedError:
    """Return the failure for a status from 400 on."""
    said, code = error.said, f"{error.code} {error.type}"
    shown = f"HTTP {status}: {said or 'no reason given'}"
    if _OVERFLOW.search(f"{code} {said}") and status != _TOO_MANY:
        text = f"{shown}; the conversation exceeds the model's context window"
        return _FailedError(ModelContextError(text), may_pass=False)
    if status >= 500 or status in _PASSING:
        return _FailedError(ModelServerError(shown), may_pass=True)
    kind, advice = _REFUSALS.get(status, (ModelRequestError, ""))
    may_pass = status == _TOO_MANY and not _USED_UP.search(f"{code} {said}")
    return _FailedError(kind(shown + advice), may_pass=may_pass)


def _too_long() -> _FailedError:
    # Not retried: another answer as long would have to be paid for as well.
    said = f"the answer has more than {_LARGEST:,} bytes; the rest was not read"
    return _FailedError(ModelAnswerError(said), may_pass=False)


def _breakdown(error: Exception, reason: str) -> _FailedError:
    """Return the failure for a connection that was refused or broke off."""
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.InvalidURL):
        return _FailedError(ModelRequestError(f"cannot be requested: {reason}"), may_pass=False)
    if isinstance(error, httpx.ConnectError):
        said = f"no connection: {reason}; is the endpoint up, and base_url right?"
        # Retrying does not help with an untrusted certificate.
        may_pass = "CERTIFICATE_VERIFY_FAILED" not in reason
        return _FailedError(ModelUnreachableError(said), may_pass=may_pass)
    said = f"the connection was interrupted: {reason}"
    return _FailedError(ModelUnreachableError(said), may_pass=True)


def find_reason(error: BaseException) -> str:
    """Return the operating system's message, from the end of httpx's chain of exceptions."""
    link: BaseException | None = error
    while link is not None:
        # TLS errors have an errno too, but it is not one of the operating system's.
        if isinstance(link, OSError) and not isinstance(link, ssl.SSLError) and link.errno:
            return os.strerror(link.errno) if link.errno > 0 else str(link.strerror)
        link = link.__cause__ or link.__context__
    return str(error)


def clean(text: str) -> str:
    """Return untrusted text on one line, of bounded length, without control characters."""
    line = _UNPRINTABLE.sub(" ", text).strip()
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
