"""Which dialect a row is written in, by marks of its own.

    canonical      it has an `event`
    openai         its role is tool or function, or it has `tool_calls` or a `function_call`, or its
                   content is a list with a part that only OpenAI has
    anthropic      its content is a list that starts with a block of some `type`
    pydantic-ai    its `kind` is request or response, and it has `parts`

A row without any of these says nothing: role and content are the same in all of them.
"""

from typing import Any, Final, Literal

from proctor.trajectory.dialects.canonical import parse_canonical
from proctor.trajectory.dialects.message import parse_message
from proctor.trajectory.dialects.openai import RESULT_ROLES, parse_openai
from proctor.trajectory.dialects.pydantic_ai import KINDS, parse_pydantic_ai
from proctor.trajectory.entry import Object
from proctor.trajectory.turn import Turn

type Dialect = Literal["canonical", "openai", "anthropic", "pydantic-ai", "plain"]
"""plain is a conversation without a mark: the rows of it have a role and a text."""

_OPENAI_PARTS: Final = ("image_url", "input_audio", "input_text", "output_text", "refusal")


def find_dialect(row: Object) -> Dialect | None:
    """The dialect that a row has the mark of; None when it could be of any."""
    if "event" in row:
        return "canonical"
    if row.get("role") in RESULT_ROLES or "tool_calls" in row or "function_call" in row:
        return "openai"
    if row.get("kind") in tuple(KINDS) and isinstance(row.get("parts"), list):
        return "pydantic-ai"
    content = row.get("content")
    return _find_in_blocks(content) if isinstance(content, list) and content else None


def _find_in_blocks(content: list[Any]) -> Dialect | None:
    kinds = [block.get("type") for block in content if isinstance(block, dict)]
    if any(kind in _OPENAI_PARTS for kind in kinds):
        return "openai"
    first = content[0]
    return "anthropic" if isinstance(first, dict) and "type" in first else None


def parse_row(row: Object, line: int, dialect: Dialect | None) -> tuple[Turn, ...]:
    """The turns of a row that has the mark of a dialect, or of none."""
    match dialect:
        case "canonical":
            return (parse_canonical(row, line),)
        case "openai":
            return (parse_openai(row, line),)
        case "pydantic-ai":
            return parse_pydantic_ai(row, line)
        case _:
            return (parse_message(row, line),)
