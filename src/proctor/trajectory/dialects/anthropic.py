"""Content as a list of blocks: text, thinking, tool_use, tool_result and whatever comes.

The parts of OpenAI messages have the same form and are read here too. A block that is none of
these, an image for one, stays in the rest of the turn in its place.
"""

from typing import Any

from proctor.trajectory.dialects.content import Blocks
from proctor.trajectory.dialects.row import Row
from proctor.trajectory.dialects.tools import add_text_block, read_call, take_output
from proctor.trajectory.entry import Object
from proctor.trajectory.turn import ToolCall, ToolResult


def read_blocks(content: list[Any]) -> Blocks:
    """Everything in a list of blocks."""
    blocks = Blocks()
    for block in content:
        if not add_text_block(blocks, block) and not _add_object(blocks, block):
            blocks.add_other(block)
    return blocks


def _add_object(blocks: Blocks, block: Any) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        return False
    if kind == "thinking" and isinstance(block.get("thinking"), str):
        left = {key: value for key, value in block.items() if key != "thinking"}
        says_more = left != {"type": "thinking"}
        blocks.add_thought(block["thinking"], left, block, says_more=says_more)
    elif kind == "tool_use" or kind.endswith("_tool_use"):
        blocks.add_call(_read_tool_use(block), {"type": kind})
    elif kind == "tool_result" or kind.endswith("_tool_result"):
        blocks.add_result(_read_tool_result(block), {"type": kind})
    else:
        return False
    return True


def _read_tool_use(block: Object) -> ToolCall:
    row = Row(block)
    if block["type"] == "tool_use":
        del row.rest["type"]
    return read_call(row, "name", "input", "id")


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
