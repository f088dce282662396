"""Spans back to what a record and a trace say, as far as they say it.

It reads the bytes that were written, not the values they were made from: whatever the way there
dropped, changed or forgot is missing here, and so a loss.
"""

from collections.abc import Iterator

import msgspec

from proctor.exporters.chats import flatten_entry
from proctor.exporters.fields import put_at
from proctor.exporters.otel import carried
from proctor.exporters.otel.model import Attributes, Span, read_attributes
from proctor.exporters.otel.times import find_moment, render_moment
from proctor.trajectory.entry import Entry, Object

type Kept = tuple[str, int, Object]
"""An entry that came back: its part, its place in the trace, and what is said of it."""

_PARTS = {"text": "content", "reasoning": "thought"}
_DECODER = msgspec.json.Decoder(Span)


def read_span(data: bytes) -> Span:
    """A span as it was written."""
    return _DECODER.decode(data)


def read_entries(span: Span) -> Iterator[Kept]:
    """What a span says of entries; a result has a span of its own first, which says most of it."""
    said = read_attributes(span.attributes)
    part = str(said.get(carried.PART, ""))
    match said["gen_ai.operation.name"]:
        case "chat":
            yield from ((part, at, entry) for at, entry in _read_chat(span, said))
        case "execute_tool":
            yield from ((part, at, entry) for at, entry in _read_tool(span, said))
        case _:
            for message in _parse(said.get(carried.UNANSWERED)):
                yield message.get("part", ""), *_read_message(message)


def is_root(span: Span) -> bool:
    """Whether it is the span of the trial itself."""
    return not span.parent_span_id


def flatten(entry: Entry) -> Object:
    """An entry as it is compared: its time in the one spelling."""
    flat = flatten_entry(entry)
    return flat | _spell(flat.get("timestamp"))


def _spell(time: object) -> Object:
    moment = find_moment(time) if isinstance(time, str) else None
    return {} if moment is None else {"timestamp": render_moment(moment)}


def read_told(root: Span) -> Object:
    """What the span of a trial says of what is sealed."""
    said = read_attributes(root.attributes)
    told: Object = {}
    for path, name in carried.ATTRIBUTES.items():
        if name in said:
            put_at(told, path, said[name])
    for message in _parse(said.get(carried.INPUT)):
        put_at(told, "record.inputs.instruction", message["parts"][0]["content"])
    for part in _parse(said.get(carried.SYSTEM)):
        put_at(told, "record.inputs.system_prompt", part["content"])
    breakdown: Object = {}
    for event in root.events:
        result = read_attributes(event.attributes)
        if carried.SCORE in result:
            breakdown[str(result[carried.METRIC])] = result[carried.SCORE]
    put_at(told, "record.evaluation.breakdown", breakdown)
    put_at(told, "record.evaluation.reward", breakdown.get(carried.REWARD))
    return told


def _read_chat(span: Span, said: Attributes) -> Iterator[tuple[int, Object]]:
    yield from map(_read_message, _parse(said.get(carried.INPUT)))
    if carried.ENTRY not in said:
        return
    entry: Object = {
        "role": "assistant",
        "step": said[carried.STEP],
        "timestamp": render_moment(int(span.end_time_unix_nano)),
    }
    entry |= {key: said.get(name) for key, name in carried.OF_CHAT.items()}
    (message,) = _parse(said[carried.OUTPUT])
    for part in message["parts"]:
        if part["type"] in _PARTS:
            entry[_PARTS[part["type"]]] = part["content"]
    yield int(said[carried.ENTRY]), entry


def _read_message(message: Object) -> tuple[int, Object]:
    entry: Object = {"step": message["step"], **_spell(message.get("timestamp"))}
    entry["role"] = message["role"]
    for part in message["parts"]:
        if part["type"] == "tool_call_response":
            entry["role"] = "tool_result"
            entry |= {"stdout": part["response"], "call_id": part["id"]}
        else:
            entry["content"] = part["content"]
    return message["entry"], entry


def _read_tool(span: Span, said: Attributes) -> Iterator[tuple[int, Object]]:
    both: Object = {
        "step": said[carried.STEP],
        "tool_name": said.get(carried.TOOL),
        "call_id": said[carried.CALL_ID],
    }
    call = {
        **both,
        "role": "tool_call",
        "timestamp": render_moment(int(span.start_time_unix_nano)),
    }
    if carried.ARGUMENTS in said:
        call["arguments"] = msgspec.json.decode(str(said[carried.ARGUMENTS]))
        call["command"] = call["arguments"].get("command")
    if carried.COMMAND in said:
        call["command"] = said[carried.COMMAND]
    yield int(said[carried.ENTRY]), call
    if carried.RESULT not in said:
        return
    result = {**both, "role": "tool_result"}
    result |= {key: said[name] for key, name in carried.OF_RESULT.items() if name in said}
    ended = render_moment(int(span.end_time_unix_nano))
    time = said.get(carried.RESULT_TIME)
    result["timestamp"] = ended if time is None else time
    yield int(said[carried.RESULT]), result | _spell(time)


def _parse(text: object) -> list[Object]:
    return [] if text is None else msgspec.json.decode(str(text), type=list[Object])
