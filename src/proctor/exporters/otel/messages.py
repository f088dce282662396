"""Messages as the conventions have them in attributes: JSON of roles and parts.

A message has, beyond the conventions, the place of its entry in the trace, its step and its time.
"""

from collections.abc import Iterable

import msgspec

from proctor.exporters.chats import Answer, Chat, Placed, find_thought
from proctor.trajectory.entry import Object

_CALLS_TOOLS = "tool_call"
_NOT_SAID = "unknown"


def render_messages(messages: Iterable[Object]) -> str:
    """Messages as the text of an attribute."""
    return msgspec.json.encode(list(messages)).decode()


def text_part(text: str) -> Object:
    """A part that is text."""
    return {"type": "text", "content": text}


def make_inputs(inputs: Iterable[Placed | Answer], part: str = "") -> list[Object]:
    """What the model was given since its turn before; `part` where no span says which it is."""
    said = {"part": part} if part else {}
    return [
        (_make_answer(each) if isinstance(each, Answer) else _make_message(each)) | said
        for each in inputs
    ]


def make_output(chat: Chat) -> Object:
    """What the model gave back; why it stopped is known only where it called tools."""
    parts: list[Object] = []
    if chat.said is not None:
        thought = find_thought(chat.said.entry)
        if thought is not None:
            parts.append({"type": "reasoning", "content": thought})
        if chat.said.entry.content is not None:
            parts.append(text_part(chat.said.entry.content))
    parts += [
        {
            "type": "tool_call",
            "id": call.call_id,
            "name": call.call.entry.tool_name or "",
            "arguments": call.call.entry.arguments,
        }
        for call in chat.calls
    ]
    reason = _CALLS_TOOLS if chat.calls else _NOT_SAID
    return {"role": "assistant", "parts": parts, "finish_reason": reason}


def _make_message(placed: Placed) -> Object:
    entry = placed.entry
    parts = [] if entry.content is None else [text_part(entry.content)]
    return {"role": entry.role, "parts": parts, **_place(placed)}


def _make_answer(answer: Answer) -> Object:
    entry = answer.result.entry
    part: Object = {
        "type": "tool_call_response",
        "id": answer.call_id,
        "response": entry.stdout if entry.stdout is not None else entry.output_summary or "",
    }
    return {"role": "tool", "parts": [part], **_place(answer.result)}


def _place(placed: Placed) -> Object:
    time = placed.entry.timestamp
    said: Object = {"entry": placed.at, "step": placed.entry.step}
    return said if time is None else {**said, "timestamp": time}
