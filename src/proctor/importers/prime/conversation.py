"""The messages of a sample as rows of conversation.jsonl, the calls in them, what was handed in.

A row has role and content, and tool_calls and tool_call_id where there are any; what else a message
holds stays in the raw sample. Calls may be objects or the JSON text of objects.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from proctor.errors import PrimeError
from proctor.importers.prime.naming import submitted_name
from proctor.importers.prime.reading import find_object, find_text, parse_json, whole_text
from proctor.sentence import count_of, shown
from proctor.trajectory.entry import Object

SUBMIT: Final = "submit_answer"


@dataclass(frozen=True, slots=True)
class Submitted:
    """An answer that the agent handed in."""

    name: str
    """Among the trial's evidence."""
    data: bytes
    asked: str | None
    """The path that it was handed in under, where that could not be its name."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said, as rows."""

    prompt: list[Object]
    completion: list[Object]

    @property
    def rows(self) -> list[Object]:
        """All of it, in its order."""
        return [*self.prompt, *self.completion]


def read_conversation(sample: Object, notes: list[str]) -> Conversation:
    """The messages of a sample; what cannot be one is noted."""
    return Conversation(
        _make_rows(sample.get("prompt"), "prompt", notes),
        _make_rows(sample.get("completion"), "completion", notes),
    )


def _make_rows(messages: object, key: str, notes: list[str]) -> list[Object]:
    if isinstance(messages, str):
        # How a model without roles is asked, and how it answers.
        role = "user" if key == "prompt" else "assistant"
        return [{"role": role, "content": messages}] if messages else []
    if not isinstance(messages, list):
        if messages is not None:
            notes.append(f"{key} is {shown(messages)}; expected a list of messages")
        return []
    rows = [_make_row(each, notes) for each in messages if isinstance(each, dict)]
    if len(rows) < len(messages):
        said = count_of(len(messages) - len(rows), "message")
        notes.append(f"{said} of {key} could not be read; the raw sample has all")
    return rows


def _make_row(message: Object, notes: list[str]) -> Object:
    role = message.get("role")
    row: Object = {
        "role": "" if role is None else role if isinstance(role, str) else shown(role),
        "content": message.get("content") or "",
    }
    if calls := _find_calls(message.get("tool_calls"), notes):
        row["tool_calls"] = calls
    if message.get("tool_call_id"):
        row["tool_call_id"] = message["tool_call_id"]
    return row


def _find_calls(value: object, notes: list[str]) -> list[Object]:
    if isinstance(value, str) and value.strip():
        try:
            value = parse_json(value, "tool_calls")
        except PrimeError:
            notes.append("tool_calls are text that is no JSON; they are only in the raw sample")
            return []
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        return []
    calls = [call for each in value if (call := find_object(each)) is not None]
    if len(calls) < len(value):
        said = count_of(len(value) - len(calls), "tool call")
        notes.append(f"{said} could not be read; the raw sample has all")
    return calls


def render_rows(rows: list[Object]) -> bytes:
    """The bytes of conversation.jsonl."""
    return b"".join(json.dumps(row, sort_keys=True).encode() + b"\n" for row in rows)


def count_calls(rows: list[Object]) -> Object:
    """How often each tool was called."""
    counts = Counter(whole_text(name) for name, _ in _calls(rows))
    return {
        "total": counts.total(),
        SUBMIT: counts[SUBMIT],
        "by_tool": dict(sorted(counts.items())),
    }


def find_submitted(rows: list[Object]) -> Submitted | None:
    """The first answer that was handed in with anything in it."""
    for name, arguments in _calls(rows):
        content = arguments.get("content") if name == SUBMIT else None
        if isinstance(content, str) and content:
            path = arguments.get("path")
            kept, is_own = submitted_name(path)
            return Submitted(
                kept, content.encode("utf-8", "replace"), None if is_own else shown(path)
            )
    return None


def _calls(rows: list[Object]) -> Iterator[tuple[str, Object]]:
    for row in rows:
        for call in row.get("tool_calls", ()):
            function: Any = call.get("function")
            told = function if isinstance(function, dict) else call
            yield find_text(told.get("name")) or "", find_object(told.get("arguments")) or {}


def find_instruction(prompt: list[Object]) -> str | None:
    """What the first message of a user says that says anything."""
    for row in prompt:
        if row["role"] == "user" and (said := find_text(_words(row["content"]))):
            return said
    return None


def _words(content: object) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [each.get("text") if isinstance(each, dict) else each for each in content]
    return "\n".join(each for each in texts if isinstance(each, str))
