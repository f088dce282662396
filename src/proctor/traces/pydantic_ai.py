"""Parse message dumps of pydantic-ai: requests and responses made of parts.

A request may contain parts of the system, the user and a tool: it becomes one turn per change of
role, in the order of the parts, all with one line number. The message's own keys are in the rest of
the first turn. Null keys are left out: pydantic-ai writes them for everything that is not set.
"""

from typing import Any, Final

from proctor.traces.dialects import Blocks, Row, add_text_block, read_call, take_output
from proctor.traces.entry import Object
from proctor.traces.turn import ToolResult, Turn

KINDS: Final = {"request": "user", "response": "assistant"}
"""The kinds of messages, with their default role."""
# The role of each part of a request. Any other part belongs to the role before it.
_VOICES: Final = {
    "system-prompt": "system",
    "user-prompt": "user",
    "retry-feedback": "user",
    "tool-return": "tool",
}
# The part that is only a role's text.
_OWN_TEXT: Final = {"system": "system-prompt", "user": "user-prompt", "assistant": "text"}
_TEXTS: Final = frozenset(
    {"system-prompt", "user-prompt", "text", "retry-prompt", "retry-feedback", "compaction"}
)
_CALLS: Final = frozenset({"tool-call", "builtin-tool-call"})
_RETURNS: Final = frozenset({"tool-return", "builtin-tool-return"})
# Outcomes of a call, and whether each reaches the model as an error.
_ERRORS: Final = {
    "success": False,
    "denied": False,
    "interrupted": False,
    "failed": True,
    "retried": True,
}


def parse_pydantic_ai(value: Object, line: int) -> tuple[Turn, ...]:
    """The turns of a message: one, or one per change of role."""
    row = _read_row(value)
    default = KINDS[row.take_text("kind") or ""]
    timestamp = row.take_text("timestamp")
    voices: list[_Voice] = []
    for part in row.take_list("parts") or []:
        # Consecutive parts of one role are one turn; a change of role begins another.
        before = voices[-1].role if voices else default
        role = before if default == "assistant" else _find_voice(part, before)
        if not voices or role != before:
            voices.append(_Voice(role, timestamp))
        voices[-1].add(part)
    first, *others = voices or [_Voice(default, timestamp)]
    turn = first.turn(line, row.take_object("usage"), row.rest)
    return (turn, *(voice.turn(line, None, {}) for voice in others))


def _read_row(value: Object) -> Row:
    return Row({key: given for key, given in value.items() if given is not None})


def _find_voice(part: Any, before: str) -> str:
    kind = part.get("part_kind") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        return before
    if kind == "retry-prompt":
        return "tool" if _is_result(kind, part) else "user"
    return _VOICES.get(kind, before)


def _is_result(kind: str, part: Object) -> bool:
    # Older releases answer a call that must be repeated with a retry-prompt that names its tool.
    return kind in _RETURNS or (kind == "retry-prompt" and part.get("tool_name") is not None)


class _Voice:
    """Consecutive parts of one role."""

    def __init__(self, role: str, timestamp: str | None) -> None:
        self.role = role
        self._timestamp = timestamp
        self._blocks = Blocks()

    def turn(self, line: int, usage: Object | None, rest: Object) -> Turn:
        left = self._blocks.left_over()
        return Turn(
            line=line,
            role=self.role,
            text=self._blocks.text,
            thinking=self._blocks.thinking,
            calls=tuple(self._blocks.calls),
            results=tuple(self._blocks.results),
            timestamp=self._timestamp,
            usage=usage,
            rest=rest if left is None else rest | {"parts": left},
        )

    def add(self, part: Any) -> None:
        kind = part.get("part_kind") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            self._blocks.add_other(part)
        elif kind in _CALLS:
            row = _read_row(part)
            if part["part_kind"] == "tool-call":
                del row.rest["part_kind"]
            self._blocks.add_call(
                read_call(row, "tool_name", "args", "tool_call_id"), {"part_kind": kind}
            )
        elif _is_result(kind, part):
            self._blocks.add_result(self._read_tool_return(part), {"part_kind": kind})
        else:
            self._add_words(kind, part)

    def _add_words(self, kind: str, part: Object) -> None:
        row = _read_row(part)
        text = _take_words(row) if kind in _TEXTS or kind == "thinking" else None
        if text is None:
            self._blocks.add_other(part)
        elif kind == "thinking":
            says_more = row.rest.keys() != {"part_kind"}
            self._blocks.add_thought(text, row.rest, part, says_more=says_more)
        else:
            self._take_timestamp(row)
            says_more = row.rest != {"part_kind": _OWN_TEXT.get(self.role)}
            self._blocks.add_text(text, row.rest, part, says_more=says_more)

    def _read_tool_return(self, part: Object) -> ToolResult:
        row = _read_row(part)
        self._take_timestamp(row)
        outcome = row.rest.get("outcome")
        is_error = _ERRORS.get(outcome) if isinstance(outcome, str) else None
        if outcome == "success":
            del row.rest["outcome"]
        if part["part_kind"] == "tool-return":
            del row.rest["part_kind"]
        return ToolResult(
            text=take_output(row),
            name=row.take_text("tool_name"),
            call_id=row.take_text("tool_call_id"),
            is_error=True if part["part_kind"] == "retry-prompt" else is_error,
            rest=row.rest,
        )

    def _take_timestamp(self, row: Row) -> None:
        # Messages of older releases have no timestamp; only their parts have.
        if self._timestamp is None:
            self._timestamp = row.take_text("timestamp")


def _take_words(row: Row) -> str | None:
    """The content of a part as text, joined if it is a list; None if there is no text."""
    content = row.rest.get("content")
    if not isinstance(content, list):
        return row.take_text("content")
    blocks = Blocks()
    for item in content:
        if not _add_text_content(blocks, item) and not add_text_block(blocks, item):
            blocks.add_other(item)
    left = blocks.left_over()
    if left is None:
        del row.rest["content"]
    else:
        row.rest["content"] = left
    return blocks.text


def _add_text_content(blocks: Blocks, item: Any) -> bool:
    if not isinstance(item, dict) or item.get("kind") != "text-content":
        return False
    row = _read_row(item)
    text = row.take_text("content")
    if text is None:
        return False
    blocks.add_text(text, row.rest, item, says_more=row.rest.keys() != {"kind"})
    return True
