"""A trace as the messages of a row, each with the places of the entries it was made of.

The schema has texts only: an argument of a tool that is none is written as JSON.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from proctor.exporters.chats import Answer, Chat, Placed, find_thought, group_chats
from proctor.exporters.trials import ReadTrace
from proctor.trajectory.entry import Object


class Message(NamedTuple):
    """One message of a row."""

    body: Object
    part: str
    """The step of a trial of several."""
    said: int | None
    """The place of the entry whose words these are."""
    calls: tuple[int, ...] = ()
    """The places of its tool calls."""


def make_messages(traces: Sequence[ReadTrace]) -> list[Message]:
    """The messages of all traces of a trial, one after the other."""
    found = [message for trace in traces for message in _messages_of(trace)]
    for turn, message in enumerate(found):
        message.body["turn_idx"] = turn
    return found


def _messages_of(trace: ReadTrace) -> Iterator[Message]:
    chats = group_chats(trace.entries)
    for chat in chats.turns:
        for each in chat.inputs:
            yield _make_input(each, trace.part)
        yield _make_turn(chat, trace.part)
    for each in chats.rest:
        yield _make_input(each, trace.part)


def _make_input(each: Placed | Answer, part: str) -> Message:
    body: Object
    if isinstance(each, Placed):
        body = {"role": each.entry.role, "content": each.entry.content}
        return Message(body, part, each.at)
    entry = each.result.entry
    body = {
        "role": "tool",
        "content": entry.output_summary if entry.stdout is None else entry.stdout,
        "tool_call_id": None if each.call_id is None else [each.call_id],
    }
    return Message(body, part, each.result.at)


def _make_turn(chat: Chat, part: str) -> Message:
    said = chat.said
    body = {
        "role": "assistant",
        "content": None if said is None else said.entry.content,
        "reasoning_trace": None if said is None else find_thought(said.entry),
        "tool_calls": [
            {
                "id": call.call_id,
                "name": call.call.entry.tool_name or "",
                "arguments": _texts(call.call.entry.arguments),
            }
            for call in chat.calls
        ]
        or None,
    }
    at = None if said is None else said.at
    return Message(body, part, at, tuple(call.call.at for call in chat.calls))


def _texts(arguments: Object | None) -> dict[str, str] | None:
    if arguments is None:
        return None
    return {key: as_text(value) for key, value in arguments.items()}


def as_text(value: object) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
