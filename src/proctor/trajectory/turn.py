"""One turn of a conversation, whatever dialect it was written in.

A message, the tool calls it makes and the results it brings are kept together as the file has
them. What a row holds that no field here has a place for stays in `rest`: nothing is dropped.
A key that is null says no more than a missing one, and is not always kept.
"""

import msgspec

from proctor.trajectory.entry import Object


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that was called."""

    name: str
    """"" where the row names none."""
    arguments: Object
    """Parsed; {} when they could not be, and then `unparsed` holds the text."""
    unparsed: str | None = None
    """Arguments that are no JSON object, or one that parsing would not keep whole, as written."""
    call_id: str | None = None
    rest: Object = {}
    """Every key of the call that no other field holds, as it was."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool gave back."""

    text: str
    """The text of it; what is not text is shown as JSON, and stands in `rest` as it was."""
    name: str | None = None
    """The tool, where the row or the call of the same id says it."""
    call_id: str | None = None
    is_error: bool | None = None
    """As the dialect says it; null where it does not."""
    rest: Object = {}
    """Every key of the result that no other field holds, as it was."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What one voice says in one row, as far as people look at it."""

    line: int
    """Where in the file, counted from 1. Several turns share a line when one row holds several."""
    role: str
    """system, user, assistant or tool as a rule, as the row has it; "" where it names none."""
    text: str = ""
    """What was said; its blocks, where there are several, are joined by line ends."""
    thinking: str | None = None
    """Reasoning that the dialect keeps apart from the text."""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    timestamp: str | None = None
    """When, as the row has it."""
    usage: Object | None = None
    """Tokens, as the row has them."""
    rest: Object = {}
    """Every key of the row that no other field holds, as it was.

    A `content` (or pydantic-ai `parts`) that is more than a thought, a text, calls and results, one
    after the other, is a list here: its blocks in their order, without what the fields hold.
    """
