"""Spans back to what a record and a trace say, as far as they say it.

It reads the bytes that were written, not the values they were made from: whatever the way there
dropped, changed or forgot is missing here, and so a loss.
"""

from collections.abc import Iterable, Iterator

import msgspec

from proctor.exporters.chats import flatten_entry
from proctor.exporters.fields import put_at
from proctor.exporters.otel import carried
from proctor.exporters.otel.model import Attributes, Request, Span, read_attributes
from proctor.exporters.otel.times import find_moment, render_moment
from proctor.trajectory.entry import Entry, Object

type Back = dict[str, dict[int, Object]]
"""The entries of each part, by their places."""

_PARTS = {"text": "content", "reasoning": "thought"}
_DECODER = msgspec.json.Decoder(Request)


class ReadBack(msgspec.Struct, frozen=True):
    """What a line of the file says."""

    told: Object
    """Of what is sealed."""
    parts: Back


def read_back(line: bytes) -> ReadBack:
    """What was kept of a trial."""
    (resource,) = _DECODER.decode(line).resource_spans
    root, *spans = resource.scope_spans[0].spans
    told = _read_root(root)
    parts: Back = {}
    for span in spans:
        said = read_attributes(span.attributes)
        entries = parts.setdefault(str(said.get(carried.PART, "")), {})
        if said["gen_ai.operation.name"] == "execute_tool":
            entries.update(_read_tool(span, said))
            continue
        for place, entry in _read_chat(span, said):
            # A result has a span of its own as a rule, which says more of it.
            entries.setdefault(place, entry)
    unanswered = _parse(read_attributes(root.attributes).get(carried.UNANSWERED))
    last = list(parts)[-1] if parts else ""
    for place, entry in _read_messages(unanswered):
        parts.setdefault(last, {}).setdefault(place, entry)
    return ReadBack(told, parts)


def flatten(entries: Iterable[Entry]) -> list[Object]:
    """Entries as they are compared: every time in one spelling."""
    flat = [flatten_entry(entry) for entry in entries]
    for each in flat:
        each |= _spell(each.get("timestamp"))
    return flat


def _spell(time: object) -> Object:
    moment = find_moment(time) if isinstance(time, str) else None
    return {} if moment is None else {"timestamp": render_moment(moment)}


def _read_root(root: Span) -> Object:
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
    yield from _read_messages(_parse(said.get(carried.INPUT)))
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


def _read_messages(messages: Iterable[Object]) -> Iterator[tuple[int, Object]]:
    for message in messages:
        entry: Object = {"step": message["step"], **_spell(message.get("timestamp"))}
        entry["role"] = message["role"]
        for part in message["parts"]:
            if part["type"] == "tool_call_response":
                entry["role"] = "tool_result"
                entry |= {"stdout": part["response"], "call_id": part["id"]}
            else:
                entry["content"] = part["content"]
        yield message["entry"], entry


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
