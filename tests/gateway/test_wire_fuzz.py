"""Whatever a provider or an agent sends: reading it does not raise, and it can be stored."""

import copy
import json
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from proctor.gateway.exchange import ModelAnswer, ModelRequest, Wire
from proctor.gateway.trace import ExchangeFacts, TraceBuilder
from proctor.gateway.wire import (
    ask_for_usage,
    digest_answer,
    find_wire,
    is_usage_chunk,
    read_answer,
    read_request,
    render_error,
)
from proctor.traces.entry import Entry
from tests.gateway import bodies
from tests.gateway.bodies import encode, sse

START = datetime(2026, 1, 1, tzinfo=UTC)
PATH = bodies.GEMINI_PATH
WIRES = st.sampled_from(list(Wire))
REQUESTS = {
    Wire.OPENAI_CHAT: bodies.CHAT_REQUEST,
    Wire.OPENAI_RESPONSES: bodies.RESPONSES_REQUEST,
    Wire.ANTHROPIC: bodies.ANTHROPIC_REQUEST,
    Wire.GEMINI: bodies.GEMINI_REQUEST,
}
EVENTS: dict[Wire, tuple[Any, ...]] = {
    Wire.OPENAI_CHAT: bodies.CHAT_EVENTS,
    Wire.OPENAI_RESPONSES: bodies.RESPONSES_EVENTS,
    Wire.ANTHROPIC: bodies.ANTHROPIC_EVENTS,
    Wire.GEMINI: bodies.GEMINI_EVENTS,
}
STREAMS = [
    bodies.CHAT_STREAM,
    bodies.RESPONSES_STREAM,
    bodies.ANTHROPIC_STREAM,
    bodies.GEMINI_STREAM,
    bodies.GEMINI_ARRAY,
]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.just("\ud800"),
    st.sampled_from([[], {}, [[]], [None], [{}], {"type": 3}, {"type": "image"}, 10**400]),
    st.recursive(
        st.none() | st.text(max_size=3),
        lambda held: st.lists(held, max_size=3) | st.dictionaries(st.text(max_size=4), held),
        max_leaves=5,
    ),
)


def check(wire: Wire, request: bytes, answer: bytes, *, is_stream: bool) -> None:
    """Read both, store both, and make a trace of them."""
    asked = read_request(wire, PATH, request)
    answered = read_answer(wire, answer, is_stream=is_stream)
    msgspec.json.decode(msgspec.json.encode(asked), type=ModelRequest)
    msgspec.json.decode(msgspec.json.encode(answered), type=ModelAnswer)
    for turn in (*asked.turns, *([answered.turn] if answered.turn else [])):
        assert len(digest_answer(turn)) == 64
    builder = TraceBuilder()
    for number in (1, 2):
        entries = builder.add(asked, answered, START, 1.0, ExchangeFacts(number=number))
        assert entries
        for entry in entries:
            assert msgspec.json.decode(msgspec.json.encode(entry), type=Entry).role == entry.role


@given(WIRES, st.binary(), st.binary(), st.booleans())
def test_any_bytes(wire: Wire, request: bytes, answer: bytes, is_stream: bool) -> None:
    check(wire, request, answer, is_stream=is_stream)
    ask_for_usage(wire, request)
    is_usage_chunk(answer)


@given(WIRES, st.sampled_from(STREAMS), st.data())
def test_streams_with_changed_bytes(wire: Wire, stream: bytes, data: st.DataObject) -> None:
    changed = bytearray(stream)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    check(wire, b"{}", bytes(changed), is_stream=data.draw(st.booleans()))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value, with each of its keys or positions."""
    found: list[tuple[Any, Any]] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, held in items:
        found.append((value, key))
        if isinstance(held, dict | list):
            found += places(held)
    return found


@given(WIRES, st.data())
def test_bodies_and_events_with_changed_values(wire: Wire, data: st.DataObject) -> None:
    request = copy.deepcopy(REQUESTS[wire])
    events = copy.deepcopy([event for event in EVENTS[wire] if isinstance(event, dict)])
    for target in (request, events):
        for _ in range(data.draw(st.integers(0, 4))):
            holder, key = data.draw(st.sampled_from(places(target)))
            if isinstance(holder, list) and key >= len(holder):
                continue
            # A copy: what is drawn here may be changed by the next draw.
            holder[key] = copy.deepcopy(data.draw(ODD))
    check(wire, encode(request), sse(*map(json.dumps, events)), is_stream=True)


@given(st.one_of(st.none(), WIRES), st.integers(100, 999), st.text(), st.text())
def test_errors_are_json(wire: Wire | None, status: int, message: str, code: str) -> None:
    body = json.loads(render_error(wire, status, message, code))
    assert body["error"]["message"] == message


@given(st.text(), st.text())
def test_any_path(method: str, path: str) -> None:
    find_wire(method, path)
    find_wire("POST", path)


def test_deep_arguments_are_cut() -> None:
    deep = "[" * 900 + "]" * 900
    arguments = '{"a": ' + deep + "}"
    for wire, body in (
        (
            Wire.OPENAI_CHAT,
            {"choices": [{"message": {"tool_calls": [{"function": {"arguments": arguments}}]}}]},
        ),
        (
            Wire.ANTHROPIC,
            {"content": [{"type": "tool_use", "name": "x", "input": json.loads(arguments)}]},
        ),
    ):
        check(wire, encode(REQUESTS[wire]), encode(body), is_stream=False)
