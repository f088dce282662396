"""One turn of a conversation, whatever dialect it was written in, and turns as entries.

A message, the tool calls it makes and the results it brings are kept together as the file has
them. Keys of a row that have no field here stay in `rest`: nothing is dropped. A null key says no
more than a missing one, and is not always kept.

A conversation has no steps: each turn of the assistant begins one, and everything before the first
is step 0. Results belong to the step whose turn they answer. What a turn holds that an entry has no
field for goes into the entry's metadata, under `conversation`.
"""

from collections.abc import Iterable, Iterator

import msgspec

from proctor.traces.entry import Entry, Object


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call."""

    name: str
    """"" where the row names none."""
    arguments: Object
    """Parsed; {} when they could not be, and then `unparsed` holds the text."""
    unparsed: str | None = None
    """Arguments as written, if they are not a JSON object or parsing would lose some of it."""
    call_id: str | None = None
    rest: Object = {}
    """Every key of the call that no other field holds, as it was."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's result."""

    text: str
    """Its text; content that is not text is shown as JSON, and kept in `rest` as it was."""
    name: str | None = None
    """The tool, where the row or the call of the same id says it."""
    call_id: str | None = None
    is_error: bool | None = None
    """The dialect's error flag; null where it has none."""
    rest: Object = {}
    """Every key of the result that no other field holds, as it was."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """What one role says in one row."""

    line: int
    """Where in the file, counted from 1. Several turns share a line when one row holds several."""
    role: str
    """As in the row, usually system, user, assistant or tool; "" where it names none."""
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


_COMMAND_KEYS = ("command", "cmd", "keystrokes")
_ROLES = {"developer": "system"}
"""Roles that a trajectory knows by another name."""


def turns_to_entries(turns: Iterable[Turn]) -> Iterator[Entry]:
    """The entries that turns amount to, in their order."""
    step = 0
    for turn in turns:
        # The only unit every dialect shares is the answer of the assistant.
        if turn.role == "assistant":
            step += 1
        yield from _entries_of(turn, step)


def _entries_of(turn: Turn, step: int) -> Iterator[Entry]:
    beside: Object = dict(turn.rest)
    if turn.role in _ROLES:
        beside["role"] = turn.role
    if turn.thinking is not None:
        beside["thinking"] = turn.thinking
    if turn.usage is not None:
        beside["usage"] = turn.usage
    said = bool(turn.text or not (turn.calls or turn.results))
    # A turn that is nothing but results is no entry of its own: the first result has the rest.
    if said or (beside and not turn.results):
        yield Entry(
            role=_ROLES.get(turn.role, turn.role),
            step=step,
            content=turn.text,
            metadata=_beside(beside),
            timestamp=turn.timestamp,
        )
        beside = {}
    for call in turn.calls:
        yield _call(call, step, turn.timestamp)
    for result in turn.results:
        yield _result(result, step, turn.timestamp, beside)
        beside = {}


def _call(call: ToolCall, step: int, timestamp: str | None) -> Entry:
    commands = (call.arguments.get(key) for key in _COMMAND_KEYS)
    beside: Object = {"call_id": call.call_id, "unparsed": call.unparsed, **call.rest}
    return Entry(
        role="tool_call",
        step=step,
        tool_name=call.name,
        command=next((text for text in commands if isinstance(text, str)), ""),
        arguments=call.arguments,
        metadata=_beside(beside),
        timestamp=timestamp,
    )


def _result(result: ToolResult, step: int, timestamp: str | None, turn: Object) -> Entry:
    # No exit code is invented: whether it was an error is in the metadata.
    beside: Object = {"call_id": result.call_id, "is_error": result.is_error, **result.rest}
    if turn:
        beside["turn"] = turn
    return Entry(
        role="tool_result",
        step=step,
        tool_name=result.name,
        stdout=result.text,
        metadata=_beside(beside),
        timestamp=timestamp,
    )


def _beside(found: Object) -> Object | None:
    known = {key: value for key, value in found.items() if value is not None}
    return {"conversation": known} if known else None
