"""Anthropic's messages."""

from collections.abc import Iterator
from typing import Any

from proctor.gateway.exchange import ModelAnswer, ModelRequest
from proctor.gateway.protocols import bodies
from proctor.gateway.protocols.blocks import bound, make_turn, name_results, normalise, text_block
from proctor.gateway.protocols.bodies import Assembled, Notes, Protocol
from proctor.record.cost import Usage
from proctor.traces.entry import Object
from proctor.traces.turn import Turn

# The deltas of a content block: the key of its text in the delta, and in the block.
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "input"),
}


def read_request(body: Object, _path: str, notes: Notes) -> ModelRequest:
    """Read a request."""
    turns: list[Turn] = []
    system = normalise(body.get("system"))
    if system:
        turns.append(make_turn("system", system, 1))
    for message in bodies.list_in(body, "messages"):
        if isinstance(message, dict):
            blocks = normalise(message.get("content")) or [text_block("")]
            turns.append(
                make_turn(bodies.text_in(message, "role") or "user", blocks, len(turns) + 1)
            )
        else:
            notes.add("a message is not a JSON object")
    return ModelRequest(
        model=bodies.text_in(body, "model"),
        is_stream=body.get("stream") is True,
        turns=name_results(turns),
        tools=tuple(
            bound(tool) for tool in bodies.list_in(body, "tools") if isinstance(tool, dict)
        ),
    )


def read_answer(body: Object, notes: Notes) -> ModelAnswer:
    """Read an answer."""
    content = body.get("content")
    turn = make_turn("assistant", normalise(content), 1) if isinstance(content, list) else None
    counts = bodies.object_in(body, "usage")
    details = bodies.object_in(counts, "output_tokens_details")
    return ModelAnswer(
        turn=turn,
        model=bodies.text_in(body, "model"),
        response_id=bodies.text_in(body, "id"),
        finish_reason=bodies.text_in(body, "stop_reason"),
        usage=_read_usage(counts, notes) if counts else None,
        reasoning_tokens=bodies.count_in(details, "thinking_tokens", "reasoning_tokens"),
        error=bodies.find_error(body),
    )


def _read_usage(counts: Object, notes: Notes) -> Usage | None:
    return bodies.make_usage(
        notes,
        lambda: Usage.from_anthropic(
            input_tokens=counts.get("input_tokens"),
            cache_creation_input_tokens=_find_written(counts),
            cache_read_input_tokens=counts.get("cache_read_input_tokens"),
            output_tokens=counts.get("output_tokens"),
        ),
    )


def _find_written(counts: Object) -> Any:
    """Tokens written to the cache, which some endpoints count only for each lifetime."""
    written = counts.get("cache_creation_input_tokens")
    parts = bodies.object_in(counts, "cache_creation")
    known = [count for count in parts.values() if type(count) is int and count >= 0]
    return sum(known) if written is None and known else written


def assemble(events: Iterator[tuple[str, Object]], notes: Notes) -> Assembled:
    """Assemble the events of a stream."""
    message = _Message()
    is_complete = False
    for name, event in events:
        kind = bodies.text_in(event, "type") or name
        match kind:
            case "message_start":
                message.start(bodies.object_in(event, "message"))
            case "content_block_start":
                message.start_block(
                    bodies.index_in(event), bodies.object_in(event, "content_block")
                )
            case "content_block_delta":
                message.add(bodies.index_in(event), bodies.object_in(event, "delta"), notes)
            case "message_delta":
                message.end(bodies.object_in(event, "delta"), bodies.object_in(event, "usage"))
            case "message_stop":
                is_complete = True
            case "error":
                message.body["error"] = event.get("error") or event.get("message") or "unknown"
    return Assembled(message.finish(), is_complete)


class _Message:
    """A message, as far as it came."""

    def __init__(self) -> None:
        self.body: Object = {}
        self._blocks: dict[int, Object] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}

    def start(self, message: Object) -> None:
        """Begin it: its usage counts the input."""
        self.body = {**message, "usage": dict(bodies.object_in(message, "usage")), "content": []}

    def start_block(self, index: int, block: Object) -> None:
        """Begin a block; a block may have a first part of its text."""
        self._blocks[index] = dict(block)
        for key in ("text", "thinking"):
            if first := bodies.text_in(block, key):
                self._pieces[index, key] = [first]

    def add(self, index: int, delta: Object, notes: Notes) -> None:
        """Add a part of a block's text, thinking or arguments."""
        kind = bodies.text_in(delta, "type") or ""
        if kind not in _DELTAS:
            return
        given, kept = _DELTAS[kind]
        if index not in self._blocks:
            notes.add("a part of a content block that never began")
            self._blocks[index] = {"type": "tool_use" if kept == "input" else kept}
        if piece := bodies.text_in(delta, given):
            self._pieces.setdefault((index, kept), []).append(piece)

    def end(self, delta: Object, usage: Object) -> None:
        """Take the reason of the end and the usage, which is cumulative."""
        self.body |= {key: value for key, value in delta.items() if value is not None}
        counts = {key: value for key, value in usage.items() if value is not None}
        self.body["usage"] = {**bodies.object_in(self.body, "usage"), **counts}

    def finish(self) -> Object:
        """Return the message as it is without streaming."""
        for (index, key), pieces in self._pieces.items():
            self._blocks[index][key] = "".join(pieces)
        if self._blocks or "content" in self.body:
            self.body["content"] = [block for _, block in sorted(self._blocks.items())]
        # An error object is `{"type": "error"}`; a message must not be taken for one.
        return self.body


PROTOCOL = Protocol(read_request, read_answer, assemble)
