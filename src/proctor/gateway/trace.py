"""Builds the trace of a trial from its exchanges with models, entry by entry. No I/O.

Every request repeats its conversation: only what is new since the last exchange of the same
conversation becomes entries. A request belongs to a conversation, in this order, if

    1. all turns of the conversation are the beginning of the request,
    2. the last answer of the conversation has the same place in the request: the agent has edited
       earlier turns, for example shortened old results,
    3. all turns but the last answer are the beginning, and the system prompt is the same: the agent
       asks again, or repeats the answer in its own words.

Anything else begins a new conversation: a sub-agent, or a compaction. A compaction has the same
system prompt as an earlier conversation, and the same first turn or tools: it has the same call
type, and of its turns only those are entries that the earlier conversation does not have.

Only digests of turns are kept. They ignore whitespace, ids and thinking, because clients change
these when they repeat an answer.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from proctor.digest import sha256_digest
from proctor.gateway.exchange import ModelAnswer, ModelRequest
from proctor.gateway.wire import digest_answer
from proctor.record.cost import CostBasis
from proctor.traces.atif.carry import ATIF_KEY, CallCarry, HeadCarry, ResultCarry, call_id
from proctor.traces.atif.model import Metrics
from proctor.traces.calls import MOST_OPEN
from proctor.traces.commands import MALFORMED
from proctor.traces.entry import Entry, Object
from proctor.traces.tool_errors import FLAG
from proctor.traces.turn import ToolCall, ToolResult, Turn
from proctor.traces.usage import CACHE_WRITE

CALL_KEY: Final = "model_call"
"""Key of an entry's metadata with `CallNote`."""
MAIN: Final = "main"
SUBAGENT: Final = "subagent"
# Conversations that may be continued; older ones are forgotten.
_MOST_CONVERSATIONS: Final = 64
_SYSTEM_ROLES: Final = ("system", "developer")
_COMMAND_KEYS: Final = ("command", "cmd", "keystrokes")
# Share of the lines of a system prompt that must be known: some clients put a date or a hash in.
_SAME_LINES: Final = 0.8
# How a request continues a conversation, the best way highest.
_CONTINUED: Final = 3
_EDITED: Final = 2
_ASKED_AGAIN: Final = 1


class ExchangeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about an exchange beyond its request and answer."""

    number: int
    """Its number among the exchanges of the trial, from 1."""
    n_tries: int = 1
    """Requests that were sent for it, including retries."""
    cost: CostBasis | None = None
    """What it cost."""


class CallNote(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an entry says about its exchange."""

    conversation: int
    """Number of its conversation, from 1."""
    continues: int | None = None
    """The conversation that this one is a compaction of; only on the first entry."""
    exchange: int | None = None
    """Number of the exchange; only on answers."""
    is_repeated: bool = False
    """Whether the agent only claims that a model said it: no model did in this trial."""
    is_altered: bool = False
    """Whether the agent repeated the last answer in other words; the request is on record."""
    response_id: str | None = None
    fingerprint: str | None = None
    n_choices: int = 1
    error: str | None = None
    """The provider's error."""
    is_complete: bool = True
    """False if the answer ended early."""
    problem: str | None = None
    """What of the request or the answer could not be understood."""


class _Waiting(msgspec.Struct, frozen=True):
    """A call without a result so far."""

    call_id: str
    name: str
    step: int


class _Conversation:
    """One conversation, as far as it is known."""

    def __init__(self, number: int, call_type: str, step: int) -> None:
        self.number = number
        self.call_type = call_type
        self.step = step
        """Step of its last answer, or of the last one before it began."""
        self.known: list[bytes] = []
        """Digests of its turns without the system prompt."""
        self.lines: set[int] = set()
        """Hashes of the lines of its system prompt."""
        self.tools = b""
        self.waiting: list[_Waiting] = []
        self.continues: _Conversation | None = None

    def count_common(self, digests: Sequence[bytes]) -> int:
        """Return how many turns at the beginning are the same."""
        pairs = zip(self.known, digests, strict=False)
        return next(
            (at for at, (one, other) in enumerate(pairs) if one != other),
            min(len(self.known), len(digests)),
        )

    def rank(self, digests: Sequence[bytes], lines: set[int]) -> tuple[int, int] | None:
        """Return how well a request continues it, comparable; None if it does not."""
        length, n_common = len(self.known), self.count_common(digests)
        if not length:
            return None
        if n_common == length:
            return _CONTINUED, length
        if n_common == 0 and not self.has_lines(lines):
            return None
        if length <= len(digests) and digests[length - 1] == self.known[-1]:
            return _EDITED, length
        if n_common >= max(length - 1, 1) and self.has_lines(lines):
            return _ASKED_AGAIN, length
        return None

    def has_lines(self, lines: set[int]) -> bool:
        """Whether a system prompt is, by and large, the one of this conversation."""
        return len(lines & self.lines) >= _SAME_LINES * max(len(lines), 1) or lines == self.lines

    def awaits(self, turn: Turn) -> bool:
        """Whether a turn has the result of a call that has none so far."""
        ids = {call.call_id for call in self.waiting}
        return any(result.call_id in ids for result in turn.results)

    def is_kin(self, digests: Sequence[bytes], lines: set[int], tools: bytes) -> bool:
        """Whether a request that does not continue it is a compaction of it."""
        if not self.has_lines(lines):
            return False
        has_tools = bool(lines and tools and tools == self.tools)
        return has_tools or self.count_common(digests) > 0


class _Match(NamedTuple):
    """The conversation that a request belongs to."""

    talk: _Conversation
    n_known: int
    """Turns of the request that are known."""
    is_asked_again: bool
    """Whether the last answer is missing in the request, or differs."""


class TraceBuilder:
    """Turns exchanges into entries, in the order in which answers come."""

    def __init__(self) -> None:
        self._conversations: list[_Conversation] = []
        """The last used one is the last."""
        self._n_conversations = 0
        self._step = 0
        self._answers: set[bytes] = set()
        """Digests of all answers: a request that repeats one says nothing new."""
        self._prompts: dict[bytes, int] = {}
        """Digests of system prompts, with the first conversation of each."""
        self._has_tools = False
        """Whether a conversation with tools has begun."""
        self._ids: dict[str, _Conversation] = {}
        """Conversations by the ids of their last answers."""

    def add(
        self,
        request: ModelRequest,
        answer: ModelAnswer,
        started: datetime,
        seconds: float,
        facts: ExchangeFacts,
    ) -> list[Entry]:
        """Return the entries of an exchange."""
        n_system = _count_system(request.turns)
        system, turns = request.turns[:n_system], request.turns[n_system:]
        digests = [_digest_turn(turn) for turn in turns]
        lines = {hash(line) for turn in system for line in turn.text.splitlines()}
        match = self._find(request, digests, lines)
        talk, n_known = match.talk, match.n_known
        sent, came = _stamp(started), _stamp(started + timedelta(seconds=seconds))
        entries = list(self._add_system(talk, system, lines, sent))
        is_altered = match.is_asked_again and self._is_altered(turns[n_known:])
        n_known += is_altered
        before = frozenset(talk.continues.known if talk.continues else ())
        for turn, digest in zip(turns[n_known:], digests[n_known:], strict=True):
            # Different results may have the same text: one that is awaited is new.
            if digest not in before or talk.awaits(turn):
                entries += self._add_turn(talk, turn, sent)
        talk.known = (talk.known if request.previous_id else []) + digests
        problems = [text for text in (request.problem, answer.problem) if text]
        note = CallNote(
            conversation=talk.number,
            exchange=facts.number,
            is_altered=is_altered,
            response_id=answer.response_id,
            fingerprint=answer.fingerprint,
            n_choices=answer.n_choices,
            error=answer.error,
            is_complete=answer.is_complete,
            problem="; ".join(problems) or None,
        )
        entries += self._add_answer(talk, answer, facts, note, (came, seconds))
        if talk.continues is not None:
            entries[0] = _with_note(entries[0], continues=talk.continues.number)
            talk.continues = None
        return entries

    def _find(self, request: ModelRequest, digests: list[bytes], lines: set[int]) -> _Match:
        """The conversation of a request; a new one if it continues none."""
        tools = sha256_digest(msgspec.json.encode(request.tools)) if request.tools else b""
        found = self._ids.get(request.previous_id or "")
        best: tuple[int, int] | None = None
        if found is None:
            ranked = [(talk.rank(digests, lines), talk) for talk in self._conversations]
            best = max((rank for rank, _ in ranked if rank), default=None)
            found = next((talk for rank, talk in reversed(ranked) if best and rank == best), None)
        if found is None and not digests and self._conversations:
            # A request that was not understood adds nothing; its answer is still an entry.
            found = self._conversations[-1]
        if found is None:
            found = self._begin(digests, lines, tools)
        found.tools = tools
        if found in self._conversations:
            self._conversations.remove(found)
        self._conversations = [*self._conversations, found][-_MOST_CONVERSATIONS:]
        kind, length = best or (0, 0)
        is_asked_again = kind == _ASKED_AGAIN
        return _Match(found, length - is_asked_again, is_asked_again)

    def _begin(self, digests: list[bytes], lines: set[int], tools: bytes) -> _Conversation:
        known = reversed(self._conversations)
        kin = next((talk for talk in known if talk.is_kin(digests, lines, tools)), None)
        self._n_conversations += 1
        # Some agents first ask for a title of the session, without tools: the conversation that
        # follows is still the main one.
        is_first = self._n_conversations == 1 or (bool(tools) and not self._has_tools)
        self._has_tools |= bool(tools)
        call_type = MAIN if is_first else kin.call_type if kin else SUBAGENT
        talk = _Conversation(self._n_conversations, call_type, self._step)
        if kin is not None:
            talk.continues, talk.waiting, talk.lines = kin, list(kin.waiting), set(kin.lines)
        return talk

    def _add_system(
        self, talk: _Conversation, system: Sequence[Turn], lines: set[int], stamp: str
    ) -> Iterator[Entry]:
        """The system prompt, once; of one that changes, only the new lines."""
        if not system or lines <= talk.lines:
            return
        text = "\n".join(turn.text for turn in system)
        first = self._prompts.setdefault(sha256_digest(text.encode(errors="replace")), talk.number)
        if talk.lines:
            new = [line for line in text.splitlines() if hash(line) not in talk.lines]
            text = "\n".join(["[lines that are new in the system prompt]", *new])
        elif first != talk.number:
            text = f"[the system prompt of conversation {first}]"
        talk.lines |= lines
        yield self._entry(talk, "system", stamp, content=text)

    def _add_turn(self, talk: _Conversation, turn: Turn, stamp: str) -> Iterator[Entry]:
        """A turn that is new in a request; results go before what the user says with them."""
        if turn.role == "assistant" and _digest_said(turn) not in self._answers:
            yield self._add_repeated(talk, turn, stamp)
            yield from self._add_calls(talk, turn.calls, stamp)
        yield from self._add_results(talk, turn.results, stamp)
        if turn.role != "assistant" and (turn.text or not turn.results):
            role = "system" if turn.role in _SYSTEM_ROLES else turn.role
            yield self._entry(talk, role, stamp, content=turn.text)

    def _is_altered(self, turns: Sequence[Turn]) -> bool:
        """Whether the first turn stands for the last answer, and no model said it."""
        is_said = bool(turns) and turns[0].role == "assistant"
        return is_said and _digest_said(turns[0]) not in self._answers

    def _add_repeated(self, talk: _Conversation, turn: Turn, stamp: str) -> Entry:
        carry = HeadCarry(reasoning_content=turn.thinking)
        entry = self._entry(talk, "assistant", stamp, carry, content=turn.text)
        return _with_note(entry, is_repeated=True)

    def _add_calls(
        self, talk: _Conversation, calls: Sequence[ToolCall], stamp: str
    ) -> Iterator[Entry]:
        for index, call in enumerate(calls):
            called = call.call_id or call_id(talk.step, index)
            talk.waiting.append(_Waiting(called, call.name, talk.step))
            extra = {MALFORMED: call.unparsed} if call.unparsed else None
            commands = (call.arguments.get(key) for key in _COMMAND_KEYS)
            yield self._entry(
                talk,
                "tool_call",
                stamp,
                CallCarry(tool_call_id=called, extra=extra),
                tool_name=call.name,
                command=next((text for text in commands if isinstance(text, str)), ""),
                arguments=call.arguments,
            )
        del talk.waiting[:-MOST_OPEN]

    def _add_results(
        self, talk: _Conversation, results: Sequence[ToolResult], stamp: str
    ) -> Iterator[Entry]:
        for result in results:
            call = _take_waiting(talk.waiting, result)
            called = call.call_id if call else result.call_id
            extra = {FLAG: True} if result.is_error else None
            entry = self._entry(
                talk,
                "tool_result",
                stamp,
                ResultCarry(source_call_id=called, extra=extra),
                tool_name=result.name or (call.name if call else None),
                stdout=result.text,
            )
            yield msgspec.structs.replace(entry, step=call.step) if call else entry

    def _add_answer(
        self,
        talk: _Conversation,
        answer: ModelAnswer,
        facts: ExchangeFacts,
        note: CallNote,
        came: tuple[str, float],
    ) -> Iterator[Entry]:
        stamp, seconds = came
        carry = _carry_answer(answer, facts)
        turn = answer.turn
        if turn is None or (answer.error and not turn.text and not turn.calls):
            content = f"The request to the model failed: {_describe_failure(answer)}"
            yield _noted(self._entry(talk, "system", stamp, carry, content=content), note)
            return
        self._step += 1
        talk.step = self._step
        said = _digest_said(turn)
        self._answers.add(said)
        talk.known.append(said)
        self._remember(answer.response_id, talk)
        took = round(seconds * 1000)
        entry = self._entry(talk, "assistant", stamp, carry, content=turn.text, duration_ms=took)
        yield _noted(entry, note)
        yield from self._add_calls(talk, turn.calls, stamp)
        yield from self._add_results(talk, turn.results, stamp)

    def _remember(self, response_id: str | None, talk: _Conversation) -> None:
        if response_id:
            self._ids[response_id] = talk
            while len(self._ids) > MOST_OPEN * _MOST_CONVERSATIONS:
                del self._ids[next(iter(self._ids))]

    def _entry(
        self,
        talk: _Conversation,
        role: str,
        stamp: str,
        carry: msgspec.Struct | None = None,
        **fields: Any,
    ) -> Entry:
        metadata: Object = {CALL_KEY: {"conversation": talk.number}}
        if carry is not None and (carried := msgspec.to_builtins(carry)):
            metadata = {ATIF_KEY: carried, **metadata}
        made: Object = {"step": talk.step, "call_type": talk.call_type, "timestamp": stamp}
        return Entry(role=role, metadata=metadata, **made, **fields)


def _count_system(turns: Sequence[Turn]) -> int:
    others = (at for at, turn in enumerate(turns) if turn.role not in _SYSTEM_ROLES)
    return next(others, len(turns))


def _digest_turn(turn: Turn) -> bytes:
    """Digest of what a turn says; short, because a long conversation has many."""
    if turn.role == "assistant":
        return _digest_said(turn)
    parts = [turn.role, digest_answer(turn)]
    parts += ["".join(result.text.split()) for result in turn.results]
    return sha256_digest("\0".join(parts).encode(errors="replace"))[:16]


def _digest_said(turn: Turn) -> bytes:
    return bytes.fromhex(digest_answer(turn)[:32])


def _take_waiting(waiting: list[_Waiting], result: ToolResult) -> _Waiting | None:
    """Remove and return the call of a result: by its id, else the first open one of its name."""
    by_id = (at for at, call in enumerate(waiting) if call.call_id == result.call_id)
    by_name = (at for at, call in enumerate(waiting) if call.name == result.name)
    at = next(by_id, None)
    if at is None:
        at = next(by_name, None)
    return None if at is None else waiting.pop(at)


def _carry_answer(answer: ModelAnswer, facts: ExchangeFacts) -> HeadCarry:
    """What counts tokens, cost and models for records and summaries."""
    usage, cost = answer.usage, facts.cost
    extra: Object = {
        "reasoning_tokens": answer.reasoning_tokens,
        CACHE_WRITE: usage.cache_write if usage else None,
        "cost_basis": cost.kind if cost else None,
    }
    metrics = Metrics(
        prompt_tokens=usage.input if usage else None,
        completion_tokens=usage.output if usage else None,
        cached_tokens=usage.cache_read if usage else None,
        cost_usd=cost.amount_usd if cost else None,
        extra=_known(extra) or None,
    )
    return HeadCarry(
        model_name=answer.model,
        reasoning_content=answer.turn.thinking if answer.turn else None,
        metrics=None if metrics == Metrics() else metrics,
        llm_call_count=facts.n_tries,
        extra=_known({"finish_reason": answer.finish_reason}) or None,
    )


def _describe_failure(answer: ModelAnswer) -> str:
    if answer.error:
        return answer.error
    if not answer.is_complete:
        return "its answer ended before it said anything"
    return answer.problem or f"its answer is empty ({answer.finish_reason or 'no reason given'})"


def _known(fields: Object) -> Object:
    return {key: value for key, value in fields.items() if value is not None}


def _noted(entry: Entry, note: CallNote) -> Entry:
    metadata = {**(entry.metadata or {}), CALL_KEY: msgspec.to_builtins(note)}
    return msgspec.structs.replace(entry, metadata=metadata)


def _with_note(entry: Entry, **facts: object) -> Entry:
    metadata = entry.metadata or {}
    note = {**metadata.get(CALL_KEY, {}), **facts}
    return msgspec.structs.replace(entry, metadata={**metadata, CALL_KEY: note})


def _stamp(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds")
