"""Parse rows of conversation.jsonl in the dialects of OpenAI, Anthropic and the canonical form.

Keys are removed from a row as they are read: whatever was not read, or has an unexpected type,
remains as its rest. So nothing is dropped by oversight, and parsing never fails. pydantic_ai.py has
its own module; conversation.py decides which dialect a row has.
"""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from proctor.traces.entry import Object
from proctor.traces.lines import parse_whole
from proctor.traces.turn import ToolCall, ToolResult, Turn


class Row:
    """An object while it is read. The original is not changed."""

    def __init__(self, value: Object) -> None:
        self.rest = dict(value)
        """What has not been read."""

    def take_text(self, *keys: str) -> str | None:
        """The string under the first of the keys that has one."""
        for key in keys:
            found = self._take(key, str)
            if found is not None:
                return str(found)
        return None

    def take_object(self, key: str) -> Object | None:
        """The object under a key."""
        found: Object | None = self._take(key, dict)
        return found

    def take_list(self, key: str) -> list[Any] | None:
        """The list under a key."""
        found: list[Any] | None = self._take(key, list)
        return found

    def take_flag(self, key: str) -> bool | None:
        """The boolean under a key."""
        found: bool | None = self._take(key, bool)
        return found

    def _take(self, key: str, kind: type) -> Any:
        value = self.rest.get(key)
        if value is None or isinstance(value, kind):
            self.rest.pop(key, None)
            return value
        return None


_THOUGHT: Final = 0
_TEXT: Final = 1
_CALL: Final = 2
_RESULT: Final = 3
_OTHER: Final = 4


class _Block(NamedTuple):
    rank: int
    left: Any
    whole: Any
    says_more: bool


class Blocks:
    """Blocks of content, as read so far."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._order: list[_Block] = []

    @property
    def text(self) -> str:
        """All texts."""
        return "\n".join(self._texts)

    @property
    def thinking(self) -> str | None:
        """All thoughts; None when there are none."""
        return "\n".join(self._thoughts) if self._thoughts else None

    def add_text(self, text: str, left: Any, whole: Any, *, says_more: bool) -> None:
        """Add a text; `left` is its block without the text, which may have more than its type."""
        self._texts.append(text)
        self._order.append(_Block(_TEXT, left, whole, says_more))

    def add_thought(self, text: str, left: Any, whole: Any, *, says_more: bool) -> None:
        """Add reasoning in the same way."""
        self._thoughts.append(text)
        self._order.append(_Block(_THOUGHT, left, whole, says_more))

    def add_call(self, call: ToolCall, mark: Any) -> None:
        """Add a call, which keeps the rest of its block itself; `mark` keeps its position."""
        self.calls.append(call)
        self._order.append(_Block(_CALL, mark, mark, says_more=False))

    def add_result(self, result: ToolResult, mark: Any) -> None:
        """Add a result in the same way."""
        self.results.append(result)
        self._order.append(_Block(_RESULT, mark, mark, says_more=False))

    def add_other(self, block: Any) -> None:
        """Add a block of any other kind."""
        self._order.append(_Block(_OTHER, block, block, says_more=True))

    def left_over(self) -> list[Any] | None:
        """The blocks in order without what the fields contain; None if that adds nothing.

        It adds something if a block contains more than its text, if the order is not reasoning,
        text, calls, results, and if there are several texts or thoughts: these are then included
        whole, since joined they do not show where one ends.
        """
        ranks = [block.rank for block in self._order]
        single = {rank for rank in (_THOUGHT, _TEXT) if ranks.count(rank) == 1}
        several = any(rank <= _TEXT and rank not in single for rank in ranks)
        says_more = any(block.says_more for block in self._order)
        if not several and not says_more and ranks == sorted(ranks):
            return None
        return [
            block.whole if block.rank <= _TEXT and block.rank not in single else block.left
            for block in self._order
        ]


def read_call(row: Row, name: str, arguments: str, call_id: str) -> ToolCall:
    """Read a call, given the keys of its parts; everything else is its rest."""
    parsed, unparsed = take_arguments(row, arguments)
    return ToolCall(
        name=row.take_text(name) or "",
        arguments=parsed,
        unparsed=unparsed,
        call_id=row.take_text(call_id),
        rest=row.rest,
    )


def take_arguments(row: Row, key: str) -> tuple[Object, str | None]:
    """Arguments as an object or as JSON text; the text is kept if parsing would lose some of it."""
    text = row.take_text(key)
    if text is None:
        return row.take_object(key) or {}, None
    parsed = parse_object(text)
    if parsed is None:
        return {}, text or None
    return parsed, None


def parse_object(text: str) -> Object | None:
    """Parse an object; None if it is not one, or if parsing would lose something."""
    try:
        value = parse_whole(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def take_output(row: Row) -> str:
    """The `content` of a result as text. What the text does not contain stays in the row."""
    text = row.take_text("content")
    if text is not None:
        return text
    content = row.rest.get("content")
    if content is None:
        return ""
    if isinstance(content, list) and (not content or any(map(_is_block, content))):
        blocks = read_texts(row.rest.pop("content"))
        left = blocks.left_over()
        if left is not None:
            row.rest["content"] = left
        return blocks.text
    return json.dumps(content, ensure_ascii=False)


def _is_block(item: Any) -> bool:
    """Whether it is part of a message, not of data that a tool returned."""
    if isinstance(item, dict):
        return isinstance(item.get("type"), str) or isinstance(item.get("kind"), str)
    return isinstance(item, str)


def read_texts(content: list[Any]) -> Blocks:
    """The texts among blocks; any other block is kept as it is."""
    blocks = Blocks()
    for block in content:
        if not add_text_block(blocks, block):
            blocks.add_other(block)
    return blocks


def add_text_block(blocks: Blocks, block: Any) -> bool:
    """Add the block if it is a text in one of the usual forms; return whether it is."""
    if isinstance(block, str):
        blocks.add_text(block, block, block, says_more=False)
        return True
    if not isinstance(block, dict):
        return False
    kind = block.get("type")
    key = _TEXT_KEYS.get(kind) if isinstance(kind, str) else None
    if key is None or not isinstance(block.get(key), str):
        return False
    left = {name: value for name, value in block.items() if name != key}
    blocks.add_text(block[key], left, block, says_more=left != {"type": "text"})
    return True


_TEXT_KEYS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def read_blocks(content: list[Any]) -> Blocks:
    """Read everything in a list of blocks."""
    blocks = Blocks()
    for block in content:
        if not add_text_block(blocks, block) and not _add_object(blocks, block):
            blocks.add_other(block)
    return blocks


def _add_object(blocks: Blocks, block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        return False
    # A signature next to the thinking is kept too.
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        left = {key: value for key, value in block.items() if key != "thinking"}
        says_more = left != {"type": "thinking"}
        blocks.add_thought(block["thinking"], left, block, says_more=says_more)
    elif kind == "tool_use" or kind.endswith("_tool_use"):
        row = Row(block)
        if block["type"] == "tool_use":
            del row.rest["type"]
        blocks.add_call(read_call(row, "name", "input", "id"), {"type": kind})
    elif kind == "tool_result" or kind.endswith("_tool_result"):
        blocks.add_result(_read_tool_result(block), {"type": kind})
    else:
        return False
    return True


def _read_tool_result(block: Object) -> ToolResult:
    row = Row(block)
    if block["type"] == "tool_result":
        del row.rest["type"]
    return ToolResult(
        text=take_output(row),
        name=row.take_text("name"),
        call_id=row.take_text("tool_use_id"),
        is_error=row.take_flag("is_error"),
        rest=row.rest,
    )


def parse_message(value: Object, line: int) -> Turn:
    """The turn of a row whose calls and results, if any, are blocks of its content."""
    row = Row(value)
    return make_turn(row, take_content(row), line)


def take_content(row: Row) -> Blocks:
    """The `content` as blocks; anything but text or a list stays in the row."""
    text = row.take_text("content")
    if text is not None:
        blocks = Blocks()
        blocks.add_text(text, None, text, says_more=False)
        return blocks
    blocks = read_blocks(row.take_list("content") or [])
    left = blocks.left_over()
    if left is not None:
        row.rest["content"] = left
    return blocks


def make_turn(
    row: Row,
    blocks: Blocks,
    line: int,
    calls: Sequence[ToolCall] = (),
    results: Sequence[ToolResult] = (),
) -> Turn:
    """Make the turn of a row, with calls and results from outside its content."""
    thinking = blocks.thinking
    if thinking is None:
        thinking = row.take_text("reasoning_content", "reasoning", "thinking")
    return Turn(
        line=line,
        role=row.take_text("role") or "",
        text=blocks.text or _find_refusal(row),
        thinking=thinking,
        calls=(*blocks.calls, *calls),
        results=(*blocks.results, *results),
        timestamp=row.take_text("timestamp", "occurred_at", "created_at"),
        usage=row.take_object("usage"),
        rest=row.rest,
    )


def _find_refusal(row: Row) -> str:
    # The key stays in the row too: that it was a refusal is more than its text.
    refusal = row.rest.get("refusal")
    return refusal if isinstance(refusal, str) else ""


RESULT_ROLES = ("tool", "function")


def parse_openai(value: Object, line: int) -> Turn:
    """The turn of a row."""
    row = Row(value)
    calls = _take_calls(row)
    if row.rest.get("role") in RESULT_ROLES:
        return make_turn(row, Blocks(), line, calls, [take_result(row, "name")])
    return make_turn(row, take_content(row), line, calls)


def take_result(row: Row, name: str) -> ToolResult:
    """The single result that a row is, with what its text does not contain."""
    text = take_output(row)
    rest = {"content": row.rest.pop("content")} if "content" in row.rest else {}
    return ToolResult(
        text=text,
        name=row.take_text(name),
        call_id=row.take_text("tool_call_id"),
        is_error=row.take_flag("is_error"),
        rest=rest,
    )


def _take_calls(row: Row) -> list[ToolCall]:
    calls: list[ToolCall] = []
    strange: list[Any] = []
    for given in row.take_list("tool_calls") or []:
        call = parse_object(given) if isinstance(given, str) else given
        if isinstance(call, dict):
            calls.append(_read_call(call))
        else:
            strange.append(given)
    if strange:
        row.rest["tool_calls"] = strange
    elif row.rest.get("tool_calls") == "":
        # One evaluation service writes an empty string for no calls.
        del row.rest["tool_calls"]
    function = row.take_object("function_call")
    if function is not None:
        calls.append(read_call(Row(function), "name", "arguments", "id"))
    return calls


def _read_call(given: Object) -> ToolCall:
    """A call as {id, type, function: {name, arguments}}, or with name and arguments directly."""
    row = Row(given)
    if row.rest.get("type") == "function":
        del row.rest["type"]
    for holder, arguments in (("function", "arguments"), ("custom", "input")):
        inner = row.take_object(holder)
        if inner is not None:
            return _read_held_call(row, holder, Row(inner), arguments)
    return read_call(row, "name", "arguments", "id")


def _read_held_call(row: Row, holder: str, inner: Row, key: str) -> ToolCall:
    arguments, unparsed = take_arguments(inner, key)
    name = inner.take_text("name") or ""
    call_id = row.take_text("id")
    rest = row.rest | {holder: inner.rest} if inner.rest else row.rest
    return ToolCall(name=name, arguments=arguments, unparsed=unparsed, call_id=call_id, rest=rest)


def parse_canonical(value: Object, line: int) -> Turn:
    """The turn of a row. An event that the turn does not imply stays in its rest."""
    row = Row(value)
    event = row.rest["event"]
    if event == "tool_call":
        del row.rest["event"]
        own = Row({key: row.rest.pop(key) for key in _CALL_KEYS if key in row.rest})
        call = read_call(own, "tool_name", "arguments", "tool_call_id")
        return make_turn(row, take_content(row), line, [call])
    if event == "tool_result" or row.rest.get("role") == "tool":
        if event == "tool_result":
            del row.rest["event"]
        return make_turn(row, Blocks(), line, results=[take_result(row, "tool_name")])
    if event == "message":
        del row.rest["event"]
    return make_turn(row, take_content(row), line)


_CALL_KEYS = ("tool_name", "arguments", "tool_call_id")
