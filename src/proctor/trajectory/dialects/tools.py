"""Calls and results, in the form that every dialect makes of them."""

import json
from typing import Any

from proctor.trajectory.decoding import parse_whole
from proctor.trajectory.dialects.content import Blocks
from proctor.trajectory.dialects.row import Row
from proctor.trajectory.entry import Object
from proctor.trajectory.turn import ToolCall


def read_call(row: Row, name: str, arguments: str, call_id: str) -> ToolCall:
    """A call, given the keys under which its parts stand; all else is its rest."""
    parsed, unparsed = take_arguments(row, arguments)
    return ToolCall(
        name=row.take_text(name) or "",
        arguments=parsed,
        unparsed=unparsed,
        call_id=row.take_text(call_id),
        rest=row.rest,
    )


def take_arguments(row: Row, key: str) -> tuple[Object, str | None]:
    """Arguments as an object or as JSON text; the text too where it cannot be parsed whole."""
    text = row.take_text(key)
    if text is None:
        return row.take_object(key) or {}, None
    parsed = parse_object(text)
    if parsed is None:
        return {}, text or None
    return parsed, None


def parse_object(text: str) -> Object | None:
    """The object that a JSON text holds; None when it is not one, or parsing would lose of it."""
    try:
        value = parse_whole(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def take_output(row: Row) -> str:
    """The `content` of a result as text. What the text does not hold of it stays in the row."""
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
    """Whether it is part of a message rather than of data that a tool gave."""
    if isinstance(item, dict):
        return isinstance(item.get("type"), str) or isinstance(item.get("kind"), str)
    return isinstance(item, str)


def read_texts(content: list[Any]) -> Blocks:
    """The texts among some blocks; whatever else there is, is another block."""
    blocks = Blocks()
    for block in content:
        if not add_text_block(blocks, block):
            blocks.add_other(block)
    return blocks


def add_text_block(blocks: Blocks, block: Any) -> bool:
    """Add the block if it is a text in one of the usual ways; says whether it is."""
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
