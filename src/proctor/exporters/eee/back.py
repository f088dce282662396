"""A row back to what a record and a trace say, as far as it says it.

It reads the bytes that were written. The step of a message is counted, as a reader would: each
turn of the assistant begins one.
"""

from collections.abc import Iterator, Sequence

import msgspec

from proctor.exporters.chats import flatten_entry
from proctor.exporters.eee.messages import Message
from proctor.exporters.eee.rows import METADATA, TEXTS
from proctor.exporters.fields import put_at
from proctor.exporters.trials import ReadTrace
from proctor.trajectory.entry import Object
from proctor.trajectory.loss import Loss, find_losses


def find_row_losses(
    line: bytes, told: Object, traces: Sequence[ReadTrace], messages: Sequence[Message]
) -> Iterator[Loss]:
    """What a written row does not say of a trial."""
    row: Object = msgspec.json.decode(line)
    yield from find_losses(told, _read_told(row))
    places = _read_entries(row["messages"], messages)
    for trace in traces:
        yield from trace.losses
        at = f"entries of {trace.part}" if trace.part else "entries"
        for place, entry in enumerate(trace.entries):
            kept = places.get((trace.part, place), {})
            yield from find_losses(flatten_entry(entry), kept, f"{at}[{place}]")
    if len(traces) > 1:
        why = "the messages of all steps stand one after the other, without their names"
        yield Loss("steps", f"{len(traces)}", why)


def _read_told(row: Object) -> Object:
    told: Object = {}
    for path, name in METADATA.items():
        text = row["metadata"].get(name)
        if text is not None:
            put_at(told, path, text if name in TEXTS else msgspec.json.decode(text))
    put_at(told, "record.task.task_id", row["sample_id"])
    put_at(told, "record.agent.model", row["model_id"])
    put_at(told, "record.inputs.instruction", row["input"]["raw"])
    put_at(told, "record.evaluation.reward", row["evaluation"]["score"])
    return told


type _Places = dict[tuple[str, int], Object]


def _read_entries(bodies: Sequence[Object], messages: Sequence[Message]) -> _Places:
    places: _Places = {}
    tools: dict[str, str] = {}
    step, part = 0, ""
    for body, message in zip(bodies, messages, strict=True):
        if message.part != part:
            step, part = 0, message.part
        step += body["role"] == "assistant"
        said = {**_read_said(body, tools), "step": step}
        if message.said is not None:
            places[part, message.said] = said
        for at, call in zip(message.calls, body.get("tool_calls") or (), strict=True):
            tools[call["id"]] = call["name"]
            places[part, at] = {**_read_call(call), "step": step}
    return places


def _read_said(body: Object, tools: dict[str, str]) -> Object:
    if "tool_call_id" not in body:
        thought = body.get("reasoning_trace")
        return {"role": body["role"], "content": body["content"], "thought": thought}
    (call_id,) = body["tool_call_id"] or (None,)
    return {
        "role": "tool_result",
        "stdout": body["content"],
        "call_id": call_id,
        "tool_name": tools.get(call_id or ""),
    }


def _read_call(call: Object) -> Object:
    arguments = call["arguments"]
    return {
        "role": "tool_call",
        "tool_name": call["name"],
        "arguments": arguments,
        "command": (arguments or {}).get("command"),
        "call_id": call["id"],
    }
