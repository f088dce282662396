"""OpenAI's chat completions, and the many endpoints that are compatible with them."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from proctor.gateway.exchange import ModelAnswer, ModelRequest
from proctor.gateway.protocols import bodies
from proctor.gateway.protocols.blocks import (
    MOST_CALLS,
    bound,
    name_results,
    normalise,
    render_content,
    slim,
)
from proctor.gateway.protocols.bodies import DONE, Assembled, Notes, Protocol
from proctor.record.cost import parse_spent
from proctor.traces.dialects import RESULT_ROLES, parse_openai
from proctor.traces.entry import Object
from proctor.traces.turn import Turn

# Azure names the model only in the path.
_DEPLOYMENT = re.compile(r"/deployments/([^/]+)/chat/completions")
_TEXT_KEYS = ("content", "refusal", "reasoning_content", "reasoning")
_KEPT = ("role", "name", "tool_call_id", "reasoning_content", "reasoning", "refusal")


def read_request(body: Object, path: str, notes: Notes) -> ModelRequest:
    """Read a request."""
    turns: list[Turn] = []
    for number, message in enumerate(bodies.list_in(body, "messages"), 1):
        if isinstance(message, dict):
            turns.append(_read_message(message, number))
        else:
            notes.add("a message is not a JSON object")
    deployment = _DEPLOYMENT.search(path)
    return ModelRequest(
        model=bodies.text_in(body, "model") or (deployment[1] if deployment else None),
        is_stream=body.get("stream") is True,
        turns=name_results(turns),
        tools=tuple(
            bound(tool) for tool in bodies.list_in(body, "tools") if isinstance(tool, dict)
        ),
    )


def _read_message(message: Object, line: int) -> Turn:
    row: Object = {key: message[key] for key in _KEPT if isinstance(message.get(key), str)}
    content = message.get("content")
    is_result = message.get("role") in RESULT_ROLES
    if is_result or isinstance(content, dict):
        row["content"] = render_content(content)
    elif content is not None:
        row["content"] = content if isinstance(content, str) else normalise(content)
    calls = [
        _bound_call(call)
        for call in bodies.list_in(message, "tool_calls")
        if isinstance(call, dict)
    ]
    if calls:
        row["tool_calls"] = calls[:MOST_CALLS]
    if isinstance(message.get("function_call"), dict):
        row["function_call"] = bound(message["function_call"])
    turn = slim(parse_openai(row, line))
    # `function` results are named, and have no id.
    return turn if turn.role else msgspec.structs.replace(turn, role="user")


def _bound_call(call: Object) -> Object:
    bounded: Object = bound(call)
    # A piece of a stream has an index, which says nothing about the call.
    bounded.pop("index", None)
    return bounded


def read_answer(body: Object, notes: Notes) -> ModelAnswer:
    """Read an answer."""
    choices = [choice for choice in bodies.list_in(body, "choices") if isinstance(choice, dict)]
    first = min(choices, key=bodies.index_in, default={})
    message = first.get("message")
    spent = parse_spent(body.get("usage"))
    if spent.problem:
        notes.add(f"usage: {spent.problem}")
    has_usage = isinstance(body.get("usage"), dict) and not spent.problem
    return ModelAnswer(
        turn=_read_message({**message, "role": "assistant"}, 1)
        if isinstance(message, dict)
        else None,
        model=bodies.text_in(body, "model"),
        response_id=bodies.text_in(body, "id"),
        fingerprint=bodies.text_in(body, "system_fingerprint"),
        finish_reason=bodies.text_in(first, "finish_reason"),
        usage=spent.usage if has_usage else None,
        reasoning_tokens=spent.reasoning,
        n_choices=max(len(choices), 1),
        error=bodies.find_error(body) or bodies.find_error(first),
    )


def assemble(events: Iterator[tuple[str, Object]], _notes: Notes) -> Assembled:
    """Assemble the pieces of a stream."""
    body: Object = {}
    choices: dict[int, _Choice] = {}
    is_done = False
    for name, piece in events:
        is_done = is_done or name == DONE
        for key in ("id", "model", "system_fingerprint", "usage", "error"):
            # Most pieces have a usage of null; a later one may be empty.
            if piece.get(key):
                body[key] = piece[key]
        for choice in bodies.list_in(piece, "choices"):
            if isinstance(choice, dict):
                choices.setdefault(bodies.index_in(choice), _Choice()).add(choice)
    if choices:
        body["choices"] = [choice.finish(index) for index, choice in sorted(choices.items())]
    return Assembled(body, is_done)


class _Choice:
    """One choice, as far as it came."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._calls: list[_Call] = []
        self._slots: dict[int, _Call] = {}
        self._ended: Object = {}

    def add(self, choice: Object) -> None:
        """Add a piece."""
        # Some endpoints send the last piece as a whole message.
        delta = bodies.object_in(choice, "delta", "message")
        for key in _TEXT_KEYS:
            value = delta.get(key)
            text = value if isinstance(value, str) else render_content(value) if value else ""
            if text:
                self._texts.setdefault(key, []).append(text)
        for piece in bodies.list_in(delta, "tool_calls"):
            if isinstance(piece, dict):
                self._find_call(piece).add(piece, bodies.object_in(piece, "function", "custom"))
        if isinstance(function := delta.get("function_call"), dict):
            self._find_call({}).add({}, function)
        for key in ("finish_reason", "error"):
            if choice.get(key):
                self._ended[key] = choice[key]

    def _find_call(self, piece: Object) -> "_Call":
        """The call that a piece belongs to: by index, but another id is always another call."""
        index, call_id = bodies.count_in(piece, "index"), bodies.text_in(piece, "id")
        found = self._slots.get(index) if index is not None else None
        if index is None and self._calls:
            found = self._calls[-1]
        if found is None or (call_id and found.call_id and call_id != found.call_id):
            found = _Call()
            if len(self._calls) < MOST_CALLS:
                self._calls.append(found)
        if index is not None:
            self._slots[index] = found
        return found

    def finish(self, index: int) -> Object:
        """Return the choice as it is without streaming."""
        message: Object = {key: "".join(texts) for key, texts in self._texts.items()}
        if self._calls:
            message["tool_calls"] = [call.finish() for call in self._calls]
        return {"index": index, "message": message, **self._ended}


class _Call:
    """One call, as far as it came."""

    def __init__(self) -> None:
        self.call_id: str | None = None
        self._name = ""
        self._arguments: list[str] = []
        self._object: Any = None

    def add(self, piece: Object, function: Object) -> None:
        """Add a piece: the name comes whole, the arguments in parts."""
        self.call_id = self.call_id or bodies.text_in(piece, "id")
        self._name = self._name or bodies.text_in(function, "name") or ""
        arguments = function.get("arguments", function.get("input"))
        if isinstance(arguments, str):
            self._arguments.append(arguments)
        elif isinstance(arguments, dict):
            self._object = arguments

    def finish(self) -> Object:
        """Return the call as it is without streaming."""
        arguments = "".join(self._arguments) or self._object
        return {"id": self.call_id, "function": {"name": self._name, "arguments": arguments}}


PROTOCOL = Protocol(read_request, read_answer, assemble)
