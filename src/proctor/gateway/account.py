"""The account of one trial's agent or verifier: its token, its files, and what it spent.

Nothing that goes wrong here ends a request or a trial: what cannot be written or read is logged.
"""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from proctor.errors import ModelReplayError, RecordError, TraceError
from proctor.gateway.budget import Amount, Budget
from proctor.gateway.delivery import KEY_NOTE, KeyFilter, decompress
from proctor.gateway.exchange import ModelAnswer, Wire
from proctor.gateway.recording import (
    Call,
    CallWriter,
    StoredBytes,
    append_lines,
    open_evidence,
)
from proctor.gateway.replay import Cassette
from proctor.gateway.trace import ExchangeFacts, TraceBuilder
from proctor.gateway.upstream import Upstream, find_keys, make_env, make_redactor
from proctor.gateway.weather import RETRIES
from proctor.gateway.wire import read_answer, read_request
from proctor.harbor.configs import AgentConfig
from proctor.record.cost import (
    CostBasis,
    Spending,
    Usage,
    find_cost,
    merge_bases,
    replayed_cost,
    sum_usage,
    unknown_cost,
)
from proctor.traces.entry import MODEL_TRACE, Entry, Header
from proctor.traces.writer import Redactor
from proctor.trial.models import MODEL_CALLS, ModelUse, ReplayUse

MOST_HELD: Final = 1 << 28
"""Most bytes of requests and answers under way that are held in memory for one account."""
_PREFIX: Final = "proctor-"
# About 1 ms: handing it to a thread would take as long.
_LARGEST_AT_ONCE: Final = 1 << 16
_CANCEL_SEC: Final = 0.5
_NOT_ANSWERED: Final = frozenset({"refused", "differs"})
_NOT_INCLUDED: Final = "a request ended before its answer; its cost, if any, is not included"
_NOTHING: Final = Usage(input=0, output=0, cache_read=0, cache_write=0)
_ENCODE = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange that is over, as it is to be recorded."""

    call: Call
    """Without its bodies."""
    request: bytes
    response: bytes
    wire: Wire | None
    began: datetime


class _Counted(NamedTuple):
    """What is counted of an exchange."""

    usage: Usage | None
    basis: CostBasis | None
    """None if there was no answer to pay for."""
    model: str | None = None
    is_replayed: bool = False


@dataclass(slots=True, weakref_slot=True)
class Account:
    """Lets the agent or the verifier of one trial reach models; see ModelAccount."""

    trial: str
    directory: str
    """Where its files are written."""
    upstreams: Mapping[str, Upstream]
    """The providers that it can reach, by name."""
    base: str
    """URL of the gateway."""
    hidden: Sequence[str]
    """Variables of the host with credentials, which agents of harbor would pass on."""
    budgets: tuple[Budget, ...]
    """Its own, and the job's."""
    logger: logging.Logger
    token: str = field(default_factory=lambda: f"{_PREFIX}{secrets.token_urlsafe(24)}", repr=False)
    on_use: Callable[[str, int, float | None], None] | None = None
    """Called after each exchange: the trial, its requests so far, and their cost if it is known."""
    n_retries: int = RETRIES
    """Retries of one request."""
    cassette: Cassette | None = None
    """Answers requests in place of a provider."""
    config: AgentConfig | None = None
    is_open: bool = False
    n_calls: int = 0
    limit: str | None = None
    outage: str | None = None
    redactor: Redactor = field(init=False)
    """Removes the host's keys from what providers say."""
    under_way: set[asyncio.Task[None]] = field(default_factory=set)
    """Requests that are being answered."""
    n_held: int = 0
    """Bytes of requests and answers that are in memory."""
    keys: tuple[bytes, ...] = field(init=False, repr=False)
    """The host's keys, which no answer may contain."""
    _is_late_noted: bool = False
    _recording: asyncio.Task[None] | None = None
    """Records an exchange in a thread, after those before it."""
    _n_asked: int = 0
    _n_replayed: int = 0
    _builder: TraceBuilder = field(default_factory=TraceBuilder)
    _calls: CallWriter | None = None
    _trace: int = -1
    _usages: list[Usage | None] = field(default_factory=list)
    _has_unpaid: bool = False
    """Whether a request ended before its answer, and may cost something."""
    _bases: list[CostBasis] = field(default_factory=list)
    _models: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.redactor = make_redactor(self.upstreams.values())
        self.keys = find_keys(self.upstreams.values())

    @property
    def env(self) -> Mapping[str, str]:
        """See ModelAccount."""
        blank = dict.fromkeys(self.hidden, "")
        return {**blank, **make_env(self.upstreams, self.base, self.token)}

    def find_url(self, model: str | None) -> str | None:
        """Return a base URL with the token in it, for a client on the host that asks this model."""
        name = (model or "").partition("/")[0]
        upstream = self.upstreams.get(name)
        if upstream is None:
            return None
        return f"{self.base}/t/{self.token}/{name}{upstream.path}"

    def describe(self, url: str) -> str:
        """See ModelAccount."""
        for name, upstream in self.upstreams.items():
            if url.startswith(f"{self.base}/{name}{upstream.path}"):
                rest = url.removeprefix(f"{self.base}/{name}")
                return f"{upstream.origin}{rest}"
        return url

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """See ModelAccount."""
        # Each step of a task has its own account of what it used.
        self._usages, self._bases, self._models = [], [], {}
        self.limit = self.outage = None
        self._has_unpaid = False
        self._n_asked = self._n_replayed = 0
        await self._load_cassette()
        self.is_open = True
        try:
            yield
        finally:
            self.is_open = False
            try:
                await self._end_requests()
                await self.settle()
            finally:
                self._close_files()

    async def _load_cassette(self) -> None:
        if self.cassette is None:
            return
        try:
            # In a thread: a recording may be long, and other trials go on meanwhile.
            await asyncio.to_thread(self.cassette.load)
        except TraceError as error:
            raise ModelReplayError(str(error)) from error

    def summarize(self) -> ModelUse:
        """See ModelAccount."""
        known = [usage for usage in self._usages if usage is not None]
        is_all = bool(known) and len(known) == len(self._usages)
        return ModelUse(
            n_requests=len(self._usages),
            usage=sum_usage(known) if is_all else Usage(),
            models=tuple(self._models),
            basis=self._find_basis(),
            limit=self.limit,
            outage=self.outage,
            replay=self._describe_replay(),
        )

    def _describe_replay(self) -> ReplayUse | None:
        cassette = self.cassette
        if cassette is None:
            return None
        return ReplayUse(
            source=cassette.source,
            on_difference=cassette.on_difference,
            n_recorded=cassette.n_recorded,
            n_asked=self._n_asked,
            n_replayed=self._n_replayed,
            difference=cassette.difference,
            is_stopped=cassette.is_stopped,
            unasked=cassette.find_unasked(),
        )

    def _find_basis(self) -> CostBasis | None:
        if not self._bases:
            return None
        try:
            basis = merge_bases(self._bases)
        except RecordError as error:
            return unknown_cost(str(error))
        if not self._has_unpaid:
            return basis
        return msgspec.structs.replace(basis, notes=(*basis.notes, _NOT_INCLUDED))

    async def _end_requests(self) -> None:
        while ending := set(self.under_way):
            for task in ending:
                task.cancel()
            # Again if need be: the server then still informs a client, which may not be reading.
            await asyncio.wait(ending, timeout=_CANCEL_SEC)

    async def settle(self) -> None:
        """Wait until the exchanges that are over are recorded and counted."""
        while self._recording is not None:
            await asyncio.wait({self._recording})

    @property
    def room(self) -> int:
        """Bytes that may still be held in memory."""
        return MOST_HELD - self.n_held

    def note_late(self) -> None:
        """Log that a request came with the token of a phase that is over; once."""
        if not self._is_late_noted:
            self._is_late_noted = True
            self.logger.warning(
                "%s: a request came with the token of a phase that is over", self.trial
            )

    def record(self, exchange: Exchange, reserved: ExitStack) -> None:
        """Record and count an exchange, then give up what was reserved for it.

        A large one is read in a thread, so that others are not delayed; the order stays.
        """
        is_asked = exchange.wire is not None
        self._n_asked += is_asked
        self._n_replayed += is_asked and exchange.call.is_replayed
        size = len(exchange.request) + len(exchange.response)
        if size <= _LARGEST_AT_ONCE and self._recording is None:
            with reserved:
                self._count(self._write(exchange))
        else:
            later = self._record_later(exchange, reserved, self._recording)
            self._recording = asyncio.create_task(later)

    async def _record_later(
        self, exchange: Exchange, reserved: ExitStack, before: asyncio.Task[None] | None
    ) -> None:
        with reserved:
            if before is not None:
                await asyncio.wait({before})
            self._count(await asyncio.to_thread(self._write, exchange))
        if self._recording is asyncio.current_task():
            self._recording = None

    def _write(self, exchange: Exchange) -> _Counted | None:
        """Write an exchange to both files; returns what is counted of it, None if nothing is."""
        try:
            hidden = KeyFilter(self.keys)
            plain = decompress(exchange.response, exchange.call.encoding)
            readable = hidden.hide(plain or b"")
            call, response = exchange.call, exchange.response
            if hidden.n_found:
                # It was delivered compressed; see delivery.
                cut = StoredBytes(n_cut=call.response.n_cut + len(response))
                call = msgspec.structs.replace(call, response=cut, note=KEY_NOTE)
                response = b""
            elif plain is None and call.note is None:
                note = f"the answer is encoded ({call.encoding}) and cannot be read"
                call = msgspec.structs.replace(call, note=note)
            self._append_call(call, exchange.request, response)
            if exchange.wire is None or call.ended in _NOT_ANSWERED:
                return None
            is_readable = plain is not None or (call.status or 0) >= 400
            return self._trace_exchange(exchange, exchange.wire, readable, is_readable=is_readable)
        # A defect in a reader of what others wrote ends neither a request nor a trial.
        except Exception:
            self.logger.warning("%s: an exchange cannot be read", self.trial, exc_info=True)
            return _Counted(None, unknown_cost("an answer cannot be read"))

    def _append_call(self, call: Call, request: bytes, response: bytes) -> None:
        try:
            self._open_calls().append(call, request, response)
        except OSError as error:
            self.logger.warning(
                "%s: an exchange is not recorded in %s: %s", self.trial, MODEL_CALLS, error
            )

    def _trace_exchange(
        self, exchange: Exchange, wire: Wire, readable: bytes, *, is_readable: bool
    ) -> _Counted:
        call = exchange.call
        asked = read_request(wire, call.path, exchange.request)
        if call.status is None:
            answer = ModelAnswer(error=call.note or call.ended, is_complete=False)
        else:
            is_stream = "event-stream" in (call.content_type or "") or ":stream" in call.path
            answer = read_answer(wire, readable, is_stream=is_stream)
        is_answer = answer.error is None and answer.is_complete
        # What an answer took that cannot be decoded is unknown, and not nothing.
        has_failed = answer.usage is None and not is_answer and is_readable
        basis = None
        if call.is_replayed:
            basis = replayed_cost()
        elif not has_failed:
            basis = price(answer, asked.model, call.provider, exchange.began)
        elif answer.error is None or call.status is None:
            self._has_unpaid = True
        facts = ExchangeFacts(number=call.number, n_tries=1 + len(call.retries), cost=basis)
        entries = self._builder.add(asked, answer, exchange.began, call.seconds, facts)
        self._append_trace(list(entries))
        # One without an answer leaves the rest known.
        usage = _NOTHING if has_failed else answer.usage
        return _Counted(usage, basis, answer.model or asked.model, call.is_replayed)

    def _count(self, counted: _Counted | None) -> None:
        if counted is None:
            return
        self._usages.append(counted.usage)
        if counted.basis is not None:
            self._bases.append(counted.basis)
        if counted.model:
            self._models[counted.model] = None
        if not counted.is_replayed:
            amount = _make_amount(counted.usage, counted.basis)
            for budget in self.budgets:
                budget.add(amount)
        if self.on_use is not None:
            basis = self._find_basis()
            self.on_use(self.trial, len(self._usages), basis.amount_usd if basis else None)

    def _append_trace(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        # The pieces of a stream may spell a key that none of them contains.
        lines = [self.redactor.redact_text(_ENCODE(entry).decode()) for entry in entries]
        try:
            append_lines(self._open_trace(), _ENCODE(Header()), [line.encode() for line in lines])
        except OSError as error:
            self.logger.warning(
                "%s: entries are not written to %s: %s", self.trial, MODEL_TRACE, error
            )

    def _open_calls(self) -> CallWriter:
        if self._calls is None:
            Path(self.directory).mkdir(exist_ok=True)
            self._calls = CallWriter(f"{self.directory}/{MODEL_CALLS}")
        return self._calls

    def _open_trace(self) -> int:
        if self._trace < 0:
            self._trace = open_evidence(f"{self.directory}/{MODEL_TRACE}")
        return self._trace

    def _close_files(self) -> None:
        # A later step of the trial has its own files: these are moved to the step's directory.
        if self._calls is not None:
            self._calls.close()
            self._calls = None
        if self._trace >= 0:
            os.close(self._trace)
            self._trace = -1


def price(answer: ModelAnswer, asked: str | None, provider: str, when: datetime) -> CostBasis:
    """Return what an answer cost, by its tokens and the listed prices of its model."""
    if answer.usage is None:
        return unknown_cost("an answer does not say how many tokens it took")
    names = [f"{provider}/{name}" for name in (answer.model, asked) if name]
    basis = unknown_cost("the answer does not name its model")
    for name in names:
        spending = Spending(usages=(answer.usage,), model=name, is_per_call=True)
        try:
            basis = find_cost([spending], when)
        except (RecordError, ArithmeticError, ValueError) as error:
            # Usage is what a provider wrote: it may be absurd.
            basis = unknown_cost(f"the tokens of an answer cannot be priced: {error}")
        if basis.amount_usd is not None:
            break
    return basis


def _make_amount(usage: Usage | None, basis: CostBasis | None) -> Amount:
    is_counted = usage is not None and usage.input is not None and usage.output is not None
    tokens = (usage.input or 0) + (usage.output or 0) if usage is not None else 0
    return Amount(
        cost_usd=basis.amount_usd or 0.0 if basis else 0.0,
        tokens=tokens,
        requests=1,
        unpriced=basis.why_unknown if basis else None,
        is_counted=is_counted,
    )
