"""A row of role and content: what every dialect but pydantic-ai's has in common.

A row without a mark of any dialect is read by this alone.
"""

from collections.abc import Sequence

from proctor.trajectory.dialects.anthropic import read_blocks
from proctor.trajectory.dialects.content import Blocks
from proctor.trajectory.dialects.row import Row
from proctor.trajectory.entry import Object
from proctor.trajectory.turn import ToolCall, ToolResult, Turn


def parse_message(value: Object, line: int) -> Turn:
    """The turn of a row whose calls and results, if it has any, are blocks of its content."""
    row = Row(value)
    return make_turn(row, take_content(row), line)


def take_content(row: Row) -> Blocks:
    """The `content` as blocks; what is neither text nor a list stays in the row."""
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
    """The turn of a row, with calls and results that stood beside its content."""
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
    # It stays in the row as well: that the model refused is more than the words it chose.
    refusal = row.rest.get("refusal")
    return refusal if isinstance(refusal, str) else ""
