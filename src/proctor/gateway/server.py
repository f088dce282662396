"""Answers the requests of a job's trials: sends them on, delivers the answers, and records both.

What a client gets is the provider's answer as it is, but for keys (see delivery). Failures that
pass are retried before anything was delivered. Bytes that cannot be understood are delivered all
the same, and the record says so. An answer is complete for its client before it is read here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakValueDictionary

import httpx

from proctor.backoff import find_retry_after, find_wait
from proctor.digest import sha256_hex
from proctor.gateway.account import Account, Exchange, price
from proctor.gateway.budget import Amount, estimate_tokens
from proctor.gateway.delivery import COMPLETE, KEY_NOTE, Delivery, KeyFilter, UsageFilter
from proctor.gateway.exchange import ModelAnswer
from proctor.gateway.recording import Call, RecordedCall, Retry, StoredBytes
from proctor.gateway.replay import Asked
from proctor.gateway.routing import Refusal, Route, find_route, select_returned
from proctor.gateway.weather import Turn, Weather, is_passing
from proctor.gateway.wire import ask_for_usage, read_request, render_error
from proctor.record.cost import Usage
from proctor.sentence import count_of

LARGEST_REQUEST: Final = 1 << 26
"""Most bytes of a request."""
REQUEST_SEC: Final = 300.0
"""Time in which a request must have come."""
_LARGEST_ERROR: Final = 1 << 20
# A provider may think for minutes before the first byte.
_TIMEOUT: Final = httpx.Timeout(connect=30, read=900, write=120, pool=None).as_dict()
# A client that does not read for so long keeps no other request waiting.
_SLOW_SEC: Final = 5.0
_STATUSES: Final = range(200, 600)
_USAGE_EDIT: Final = "stream_options.include_usage"
_PREPARED: Final = (b"content-type", b"application/json")
# Clients of OpenAI and Anthropic honour it: the gateway has retried already.
_NO_RETRY: Final = (b"x-should-retry", b"false")
# Requests that cost nothing, and are not answered by a model.
_FREE: Final = ("/count_tokens", ":countTokens")
_LOGGER = logging.getLogger(__name__)

type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
type Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class CutError(Exception):
    """The provider's answer broke off, and so must the client's."""


@dataclass(slots=True)
class Server:
    """The gateway's requests, as an ASGI application."""

    transport: httpx.AsyncBaseTransport
    """Not a client: that would remember cookies, add headers, and take half a millisecond."""
    accounts: MutableMapping[str, Account] = field(default_factory=WeakValueDictionary)
    """By token, while their trials run."""
    _weather: dict[str, Weather] = field(default_factory=dict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        route = find_route(scope, self.accounts)
        if isinstance(route, Refusal):
            await _refuse(send, route)
            return
        task = asyncio.current_task()
        if task is not None:
            route.account.under_way.add(task)
            task.add_done_callback(route.account.under_way.discard)
        with ExitStack() as held:
            body = await _read_body(receive, route, held)
            if isinstance(body, Refusal):
                await _refuse(send, body)
            elif body is not None:
                await self._answer(route, body, receive, send, held.pop_all())

    async def _answer(
        self, route: Route, body: bytes, receive: Receive, send: Send, reserved: ExitStack
    ) -> None:
        """Answer a request, and record the exchange, however it ends."""
        account, began = route.account, datetime.now(UTC)
        start = asyncio.get_running_loop().time()
        account.n_calls += 1
        number, delivery = account.n_calls, Delivery()
        try:
            if await self._replay(route, body, number, delivery, send):
                return
            if refusal := await self._reserve(route, body, reserved):
                delivery.ended, delivery.note = "refused", refusal.message
                await _turn_away(route, delivery, send, refusal)
            else:
                await self._until_gone(route, body, delivery, receive, send)
        except asyncio.CancelledError:
            delivery.ended = COMPLETE if delivery.is_delivered else "stopped"
            raise
        except CutError:
            raise
        # The web handler: a defect here is on record, and the client gets an error.
        except Exception as error:
            delivery.ended, delivery.note = "failed", f"proctor: {type(error).__name__}"
            _LOGGER.exception("%s: a request to a model failed", account.trial)
            raise
        finally:
            call = _describe_call(route, delivery, number, began, start)
            response = bytes(delivery.body)
            delivery.body.clear()
            reserved.callback(_release, account, len(response))
            account.record(Exchange(call, body, response, route.wire, began), reserved)

    async def _replay(
        self, route: Route, body: bytes, number: int, delivery: Delivery, send: Send
    ) -> bool:
        """Answer a request from the account's recording; return whether it was answered."""
        account, cassette = route.account, route.account.cassette
        if cassette is None:
            return False
        path = route.path.removeprefix(route.upstream.path)
        asked = Asked(number, route.method, route.wire, path, body)
        recorded = await cassette.find(asked, sha256_hex(body))
        if recorded is None:
            return False
        if isinstance(recorded, str):
            delivery.ended, delivery.note = "differs", recorded
            refusal = Refusal(403, "replay_differs", recorded, route.wire)
            await _turn_away(route, delivery, send, refusal)
            return True
        if recorded.call.ended == "refused":
            account.limit = recorded.call.note
        account.outage = recorded.call.note if recorded.call.ended == "failed" else None
        await _deliver_recorded(route, recorded, delivery, send)
        return True

    async def _reserve(self, route: Route, body: bytes, stack: ExitStack) -> Refusal | None:
        """Reserve what a request will cost, or return why it is refused."""
        account = route.account
        budgets = [budget for budget in account.budgets if budget.limits]
        if (
            not budgets
            or route.method != "POST"
            or route.path.partition("?")[0].rstrip("/").endswith(_FREE)
        ):
            return None
        # What the answers before this one cost must be known.
        await account.settle()
        amount = _estimate(route, body)
        for budget in budgets:
            if route.wire is None and (sentence := budget.find_uncounted(route.path)):
                return Refusal(403, "not_counted", sentence, route.wire)
            if sentence := budget.find_reached(amount):
                account.limit = sentence
                return Refusal(403, "limit_reached", sentence, route.wire)
        # Nothing was awaited since the check: no other request can have reserved the same.
        for budget in budgets:
            if route.wire is None:
                # Its answer is not read, so nothing else counts it.
                budget.add(amount)
            else:
                stack.enter_context(budget.reserved(amount))
        return None

    async def _until_gone(
        self, route: Route, body: bytes, delivery: Delivery, receive: Receive, send: Send
    ) -> None:
        """Send the request on, unless its client goes away before the answer is complete."""
        work = asyncio.create_task(self._forward(route, body, delivery, send))
        gone = asyncio.create_task(_wait_gone(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not delivery.is_delivered:
                delivery.ended = "client-gone"
                return
            # A server says that a client is gone when its answer is complete, too.
            await work
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)

    async def _forward(self, route: Route, body: bytes, delivery: Delivery, send: Send) -> None:
        edited = None if route.wire is None else ask_for_usage(route.wire, body)
        delivery.edits = (_USAGE_EDIT,) if edited is not None else ()
        sent = body if edited is None else edited
        weather = self._weather.setdefault(route.upstream.origin, Weather())
        account = route.account
        while True:
            async with weather.turn() as turn:
                status, said, headers = await self._try(route, sent, delivery, send, turn)
                if status is None:
                    if delivery.ended == COMPLETE:
                        weather.note_success()
                        account.outage = None
                    return
                n_tries = len(delivery.retries) + 1
                asked = find_retry_after(headers, datetime.now(UTC))
                wait = find_wait(asked, n_tries, weather.chance())
                weather.note_failure(status, wait, turn)
            if n_tries > account.n_retries:
                break
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            delivery.retries.append(Retry(now, status or None, said, round(wait, 3)))
            await asyncio.sleep(wait)
        self._note_outage(route, delivery, "no answer", said)
        delivery.status = 502
        refusal = Refusal(502, "provider_failed", delivery.note or said, route.wire)
        _keep(route, delivery, await _refuse(send, refusal))

    def _note_outage(self, route: Route, delivery: Delivery, what: str, said: str) -> None:
        retries = count_of(len(delivery.retries), "retry", "retries")
        delivery.note = f"{route.upstream.shown}: {what} after {retries}: {said}"
        route.account.outage, delivery.ended = delivery.note, "failed"

    async def _try(
        self, route: Route, body: bytes, delivery: Delivery, send: Send, turn: Turn
    ) -> tuple[int | None, str, Mapping[str, str]]:
        """Ask the provider once, and deliver the answer; then the returned status is None.

        If the same request may succeed later, nothing is delivered, and the status is returned: 0
        if there was no answer.
        """
        try:
            request = httpx.Request(
                route.method,
                route.url,
                headers=route.headers,
                content=body or None,
                extensions={"timeout": _TIMEOUT},
            )
            response = await self.transport.handle_async_request(request)
        except (httpx.InvalidURL, httpx.LocalProtocolError, UnicodeError) as error:
            sentence = f"the request cannot be sent: {_describe(error)}"
            await _fail(route, delivery, send, sentence, status=400)
            return None, "", {}
        except (httpx.HTTPError, OSError) as error:
            return 0, route.account.redactor.redact_text(_describe(error)), {}
        try:
            return await self._deliver_any(route, response, delivery, send, turn)
        except (httpx.HTTPError, OSError) as error:
            said = route.account.redactor.redact_text(_describe(error))
            if not delivery.is_started:
                return 0, said, {}
            # Part of the answer was delivered: the client has to see that it is cut.
            delivery.ended, delivery.note = "cut", said
            route.account.outage = f"{route.upstream.shown}: {said}"
            raise CutError(said) from error
        finally:
            await response.aclose()

    async def _deliver_any(
        self, route: Route, response: httpx.Response, delivery: Delivery, send: Send, turn: Turn
    ) -> tuple[int | None, str, Mapping[str, str]]:
        status, shown = response.status_code, route.upstream.shown
        redact = route.account.redactor.redact_text
        if status not in _STATUSES:
            await _fail(route, delivery, send, f"{shown} answers with the status {status}")
        elif response.is_redirect:
            to = redact(response.headers.get("location", ""))[:200]
            sentence = f"{shown} redirects to {to!r}, which is not followed"
            await _fail(route, delivery, send, sentence, code="redirect")
        elif status >= 400:
            data = await _read_some(response, _LARGEST_ERROR)
            data = redact(data.decode("latin-1")).encode("latin-1", "replace")
            if is_passing(status, data):
                if len(delivery.retries) < route.account.n_retries:
                    return status, _shorten(data), response.headers
                self._note_outage(route, delivery, f"status {status}", _shorten(data))
            await _deliver_error(route, response, data, delivery, send)
        else:
            await _Answer(route, response, delivery, send, turn).deliver()
        return None, "", {}


@dataclass(slots=True)
class _Answer:
    """An answer on its way to the client."""

    route: Route
    response: httpx.Response
    delivery: Delivery
    send: Send
    turn: Turn
    n_sending: int = 0
    """Chunks that were given to the client, begun and ended counted."""
    watching: asyncio.TimerHandle | None = None

    async def deliver(self) -> None:
        """Deliver it chunk by chunk: what the client does not read is not asked for."""
        response, delivery = self.response, self.delivery
        _begin(response, delivery)
        is_stream = "event-stream" in (delivery.content_type or "") and not delivery.encoding
        usage = UsageFilter() if delivery.edits and is_stream else None
        keys = KeyFilter(self.route.account.keys)
        headers = select_returned(response.headers.raw, is_same_length=usage is None)
        if response.status_code == httpx.codes.NO_CONTENT:
            headers = [pair for pair in headers if pair[0].lower() != b"content-length"]
        await _send_start(
            self.send,
            delivery,
            response.status_code,
            [(name, keys.hide(value)) for name, value in headers],
        )
        self._watch()
        try:
            async for chunk in response.aiter_raw():
                await self._pass_on(keys.feed(chunk), usage)
            await self._pass_on(keys.finish(), usage)
        finally:
            if self.watching is not None:
                self.watching.cancel()
        if keys.n_found:
            delivery.note = KEY_NOTE
        last = {"type": "http.response.body", "body": usage.finish() if usage else b""}
        delivery.is_delivered = True
        await self.send(last)

    async def _pass_on(self, data: bytes, usage: UsageFilter | None) -> None:
        _keep(self.route, self.delivery, data)
        if usage is not None:
            data = usage.feed(data)
        if data:
            self.n_sending += 1
            await self.send({"type": "http.response.body", "body": data, "more_body": True})
            self.n_sending += 1

    def _watch(self, before: int = 0) -> None:
        """Give the turn back if the client has not read since this was last looked at."""
        # Odd: a chunk is being sent. One timer for an answer; one for each chunk takes longer.
        if self.n_sending == before and before % 2:
            self.turn.end()
        elif not self.turn.is_over:
            loop = asyncio.get_running_loop()
            self.watching = loop.call_later(_SLOW_SEC, self._watch, self.n_sending)


async def _deliver_error(
    route: Route, response: httpx.Response, data: bytes, delivery: Delivery, send: Send
) -> None:
    _begin(response, delivery)
    _keep(route, delivery, data)
    headers = [
        (name, route.account.redactor.redact_text(value.decode("latin-1")).encode("latin-1"))
        for name, value in select_returned(response.headers.raw, is_same_length=False)
        if name.lower() != _NO_RETRY[0]
    ]
    headers += [(b"content-length", str(len(data)).encode()), _NO_RETRY]
    await _send_start(send, delivery, response.status_code, headers)
    delivery.is_delivered = True
    await send({"type": "http.response.body", "body": data})


async def _fail(
    route: Route,
    delivery: Delivery,
    send: Send,
    sentence: str,
    *,
    status: int = 502,
    code: str = "provider_failed",
) -> None:
    """Answer with an error in place of the provider's answer."""
    delivery.ended, delivery.status, delivery.note = "failed", status, sentence
    delivery.is_delivered = True
    _keep(route, delivery, await _refuse(send, Refusal(status, code, sentence, route.wire)))


def _keep(route: Route, delivery: Delivery, data: bytes) -> None:
    before, account = len(delivery.body), route.account
    delivery.keep(data, asyncio.get_running_loop().time(), account.room)
    account.n_held += len(delivery.body) - before


def _release(account: Account, n_bytes: int) -> None:
    account.n_held -= n_bytes


def _estimate(route: Route, body: bytes) -> Amount:
    """Return what a request will surely cost."""
    if route.wire is None:
        return Amount(requests=1)
    tokens, cost = estimate_tokens(body), 0.0
    if any(budget.limits.cost_usd is not None for budget in route.account.budgets):
        guess = ModelAnswer(usage=Usage(input=tokens, output=0))
        model = read_request(route.wire, route.path, body).model
        name = route.upstream.provider.name
        cost = price(guess, model, name, datetime.now(UTC)).amount_usd or 0.0
    return Amount(requests=1, tokens=tokens, cost_usd=cost)


def _describe_call(
    route: Route, delivery: Delivery, number: int, began: datetime, start: float
) -> Call:
    seconds = asyncio.get_running_loop().time() - start
    return Call(
        number=number,
        at=began.isoformat(timespec="milliseconds"),
        provider=route.upstream.provider.name,
        address=route.upstream.shown,
        method=route.method,
        path=route.path,
        wire=route.wire,
        edits=delivery.edits,
        status=delivery.status,
        content_type=delivery.content_type,
        encoding=delivery.encoding,
        response=StoredBytes(n_cut=delivery.n_cut),
        seconds=round(seconds, 6),
        first_byte_seconds=delivery.first_at and round(delivery.first_at - start, 6),
        retries=tuple(delivery.retries),
        ended=delivery.ended,
        note=delivery.note,
        is_replayed=delivery.is_replayed,
    )


async def _deliver_recorded(
    route: Route, recorded: RecordedCall, delivery: Delivery, send: Send
) -> None:
    call = recorded.call
    delivery.is_replayed = True
    delivery.status, delivery.ended, delivery.note = call.status, call.ended, call.note
    delivery.content_type, delivery.encoding = call.content_type, call.encoding
    delivery.edits = call.edits
    _keep(route, delivery, recorded.response)
    data = recorded.response
    is_stream = "event-stream" in (call.content_type or "")
    if is_stream and _USAGE_EDIT in call.edits and not call.encoding:
        kept = UsageFilter()
        data = kept.feed(data) + kept.finish()
    named = {"content-type": call.content_type, "content-encoding": call.encoding}
    headers = [
        (name.encode(), value.encode("latin-1", "replace"))
        for name, value in named.items()
        if value is not None and value.isprintable()
    ]
    headers.append((b"content-length", str(len(data)).encode()))
    status = call.status or 502
    more = [_NO_RETRY] if status >= 400 else []
    await _send_start(send, delivery, status, [*headers, *more])
    delivery.is_delivered = True
    await send({"type": "http.response.body", "body": data})


async def _turn_away(route: Route, delivery: Delivery, send: Send, refusal: Refusal) -> None:
    delivery.status, delivery.content_type = refusal.status, "application/json"
    delivery.is_delivered = True
    _keep(route, delivery, await _refuse(send, refusal))


def _begin(response: httpx.Response, delivery: Delivery) -> None:
    delivery.status = response.status_code
    delivery.content_type = response.headers.get("content-type")
    encoding = response.headers.get("content-encoding", "").strip().lower()
    delivery.encoding = None if encoding in ("", "identity") else encoding


async def _send_start(
    send: Send, delivery: Delivery, status: int, headers: list[tuple[bytes, bytes]]
) -> None:
    delivery.is_started = True
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _refuse(send: Send, refusal: Refusal) -> bytes:
    """Answer with an error in the form of the client's protocol; returns its body."""
    body = render_error(refusal.wire, refusal.status, refusal.message, refusal.code)
    headers = [_PREPARED, (b"content-length", str(len(body)).encode()), _NO_RETRY]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return body


async def _read_body(receive: Receive, route: Route, held: ExitStack) -> bytes | Refusal | None:
    """Read a request, counted among what its account holds; None if its client is gone."""
    account, body = route.account, bytearray()
    try:
        async with asyncio.timeout(REQUEST_SEC):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                chunk = message.get("body", b"")
                if len(body) + len(chunk) > LARGEST_REQUEST:
                    sentence = f"the request has more than {LARGEST_REQUEST:,} bytes"
                    return Refusal(413, "too_large", sentence, route.wire)
                if len(chunk) > account.room:
                    sentence = "the requests under way take too much memory; send fewer at once"
                    return Refusal(429, "too_many", sentence, route.wire)
                body += chunk
                account.n_held += len(chunk)
                held.callback(_release, account, len(chunk))
                if not message.get("more_body"):
                    return bytes(body)
    except TimeoutError:
        sentence = f"the request did not come within {REQUEST_SEC:g} seconds"
        return Refusal(408, "too_slow", sentence, route.wire)


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_some(response: httpx.Response, most: int) -> bytes:
    data = bytearray()
    async for chunk in response.aiter_raw():
        data += chunk
        if len(data) >= most:
            break
    return bytes(data[:most])


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _shorten(data: bytes) -> str:
    return " ".join(data.decode(errors="replace").split())[:300]
