"""OpenAI's responses.

The items of a request are merged to turns: what one answer consists of (reasoning, message, calls)
is one turn of the assistant, as it was when it was answered.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from proctor.gateway.exchange import ModelAnswer, ModelRequest
from proctor.gateway.protocols import bodies
from proctor.gateway.protocols.blocks import (
    bound,
    call_block,
    make_turn,
    name_results,
    normalise,
    render_content,
    result_block,
    text_block,
    thinking_block,
)
from proctor.gateway.protocols.bodies import Assembled, Notes, Protocol
from proctor.record.cost import Usage
from proctor.traces.entry import Object
from proctor.traces.turn import Turn

_LAST: Final = ("response.completed", "response.incomplete", "response.failed")
_ASSISTANT: Final = "assistant"
# Keys of a call of a built-in tool that are not its arguments; results may be images.
_NOT_ARGUMENTS: Final = frozenset(
    ("id", "type", "status", "call_id", "result", "results", "output", "outputs")
)
# Deltas of an item, and the key of the item that they are parts of.
_DELTAS: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "summary",
    "response.function_call_arguments.delta": "arguments",
    "response.mcp_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}


def read_request(body: Object, _path: str, notes: Notes) -> ModelRequest:
    """Read a request."""
    groups: list[tuple[str, list[Object]]] = []
    if instructions := body.get("instructions"):
        groups.append(("system", normalise(instructions)))
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for item in items if isinstance(items, list) else []:
        if not isinstance(item, dict):
            notes.add("an item of the input is not a JSON object")
            continue
        role, blocks = _read_item(item)
        if role == _ASSISTANT and groups and groups[-1][0] == _ASSISTANT:
            groups[-1][1].extend(blocks)
        elif blocks or role != _ASSISTANT:
            groups.append((role, blocks))
    turns = [make_turn(role, blocks, line) for line, (role, blocks) in enumerate(groups, 1)]
    return ModelRequest(
        model=bodies.text_in(body, "model"),
        is_stream=body.get("stream") is True,
        turns=name_results(turns),
        tools=tuple(
            bound(tool) for tool in bodies.list_in(body, "tools") if isinstance(tool, dict)
        ),
        previous_id=bodies.text_in(body, "previous_response_id"),
    )


def _read_item(item: Object) -> tuple[str, list[Object]]:
    """The role and the blocks of an item of a request or an answer."""
    kind = bodies.text_in(item, "type") or "message"
    if kind == "message":
        return bodies.text_in(item, "role") or "user", normalise(item.get("content"))
    if kind == "reasoning":
        return _ASSISTANT, _read_reasoning(item)
    called = item.get("call_id", item.get("id"))
    if kind.endswith("_output"):
        return "tool", [result_block(item.get("output", item.get("tools")), called)]
    if kind in ("function_call", "custom_tool_call", "mcp_call"):
        return _ASSISTANT, _read_call(item, called)
    if kind.endswith("_call"):
        arguments = {key: value for key, value in item.items() if key not in _NOT_ARGUMENTS}
        return _ASSISTANT, [call_block(kind.removesuffix("_call"), bound(arguments), called)]
    return "user", [text_block(f"[{kind}]")]


def _read_reasoning(item: Object) -> list[Object]:
    # The text itself where an open model returns it, else its summary.
    text = render_content(item.get("content")) or render_content(item.get("summary"))
    return [thinking_block(text)] if text else []


def _read_call(item: Object, called: Any) -> list[Object]:
    arguments = item.get("arguments", item.get("input"))
    blocks = [call_block(item.get("name"), arguments, called)]
    if isinstance(output := item.get("output"), str):
        blocks.append(result_block(output, called))
    return blocks


def read_answer(body: Object, notes: Notes) -> ModelAnswer:
    """Read an answer."""
    output = body.get("output")
    counts = bodies.object_in(body, "usage")
    reason = bodies.text_in(bodies.object_in(body, "incomplete_details"), "reason")
    details = bodies.object_in(counts, "output_tokens_details")
    return ModelAnswer(
        turn=_read_output(output) if isinstance(output, list) and output else None,
        model=bodies.text_in(body, "model"),
        response_id=bodies.text_in(body, "id"),
        finish_reason=reason or bodies.text_in(body, "status"),
        usage=_read_usage(counts, notes) if counts else None,
        reasoning_tokens=bodies.count_in(details, "reasoning_tokens"),
        error=bodies.find_error(body),
    )


def _read_output(output: Iterable[Any]) -> Turn:
    blocks: list[Object] = []
    for item in output:
        if isinstance(item, dict):
            blocks += _read_item({"role": _ASSISTANT, **item})[1]
    return make_turn(_ASSISTANT, blocks, 1)


def _read_usage(counts: Object, notes: Notes) -> Usage | None:
    details = bodies.object_in(counts, "input_tokens_details")
    return bodies.make_usage(
        notes,
        lambda: Usage(
            input=counts.get("input_tokens"),
            output=counts.get("output_tokens"),
            cache_read=details.get("cached_tokens"),
            cache_write=details.get("cache_write_tokens"),
        ),
    )


def assemble(events: Iterator[tuple[str, Object]], _notes: Notes) -> Assembled:
    """Assemble the events of a stream: the last one has the whole response, if it came."""
    body: Object = {}
    items: dict[int, _Item] = {}
    is_complete = False
    for name, event in events:
        kind = bodies.text_in(event, "type") or name
        index = bodies.index_in(event, "output_index")
        if isinstance(event.get("response"), dict):
            body |= event["response"]
            is_complete = is_complete or kind in _LAST
        elif kind == "error" or "error" in event:
            body["error"] = (
                event.get("error") or bodies.text_in(event, "message", "code") or "unknown"
            )
        elif kind in ("response.output_item.added", "response.output_item.done"):
            items[index] = _Item(bodies.object_in(event, "item"))
        elif kind in _DELTAS and (delta := bodies.text_in(event, "delta")):
            items.setdefault(index, _Item({})).add(_DELTAS[kind], delta)
    if not bodies.list_in(body, "output"):
        # A cut stream, or an endpoint whose last event does not repeat the items.
        body["output"] = [item.finish() for _, item in sorted(items.items())]
    return Assembled(body, is_complete)


class _Item:
    """An item of the output, as far as it came."""

    def __init__(self, item: Object) -> None:
        self._item = item
        self._pieces: dict[str, list[str]] = {}

    def add(self, key: str, delta: str) -> None:
        """Add a part of its text, summary or arguments."""
        self._pieces.setdefault(key, []).append(delta)

    def finish(self) -> Object:
        """Return the item as it is without streaming."""
        item = dict(self._item)
        for key, pieces in self._pieces.items():
            text = "".join(pieces)
            if key == "text":
                item["content"] = [text_block(text)]
            elif key == "summary":
                item = {"type": "reasoning", **item, key: [text_block(text)]}
            else:
                item = {"type": "function_call", **item, key: text}
        return item


PROTOCOL = Protocol(read_request, read_answer, assemble)
