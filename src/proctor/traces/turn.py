"""One turn of a conversation in any dialect, and conversion of turns to entries.

A message, its tool calls and its results are kept together as in the file. Keys of a row without a
field here stay in `rest`: nothing is dropped. A null key means the same as a missing one, and is
not always kept.

A conversation has no steps: each turn of the assistant begins one, and everything before the first
is step 0. Results belong to the step of the turn that they answer. What an entry has no field for
goes into its metadata, under `conversation`.
"""

from collections.abc import Iterable, Iterator

import msgspec

from proctor.traces.entry import Entry, Object


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call."""

    name: str
    """"" if the row has none."""
    arguments: Object
    """Parsed; {} if they cannot be parsed, and then `unparsed` has the text."""
    unparsed: str | None = None
    """Arguments as written, if they are not a JSON object or parsing would lose some of it."""
    call_id: str | None = None
    rest: Object = {}
    """Every key of the call without a field, unchanged."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's result."""

    text: str
    """Its text; other content is shown as JSON, and kept unchanged in `rest`."""
    name: str | None = None
    """The tool's name, from the row or from the call with the same id."""
    call_id: str | None = None
    is_error: bool | None = None
    """The dialect's error flag; null if it has none."""
    rest: Object = {}
    """Every key of the result without a field, unchanged."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The message of one role in one row."""

    line: int
    """Line number from 1. Turns share a line if one row contains several."""
    role: str
    """As in the row, usually system, user, assistant or tool; "" if it has none."""
    text: str = ""
    """The text; several blocks are joined with newlines."""
    thinking: str | None = None
    """Reasoning, if the dialect keeps it separate from the text."""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    timestamp: str | None = None
    """Timestamp, as in the row."""
    usage: Object | None = None
    """Tokens, as in the row."""
    rest: Object = {}
    """Every key of the row without a field, unchanged.

    A `content` (or pydantic-ai `parts`) that is more than reasoning, a text, calls and results, in
    this order, is a list here: its blocks in order, without what the fields contain.
    """


_COMMAND_KEYS = ("command", "cmd", "keystrokes")
# Roles that have another name in a trajectory.
_ROLES = {"developer": "system"}


def turns_to_entries(turns: Iterable[Turn]) -> Iterator[Entry]:
    """Convert turns to entries, in order."""
    step = 0
    for turn in turns:
        # The assistant's answer is the only unit that every dialect has.
        if turn.role == "assistant":
            step += 1
        beside: Object = dict(turn.rest)
        if turn.role in _ROLES:
            beside["role"] = turn.role
        if turn.thinking is not None:
            beside["thinking"] = turn.thinking
        if turn.usage is not None:
            beside["usage"] = turn.usage
        said = bool(turn.text or not (turn.calls or turn.results))
        # A turn of results only is not an entry itself: the first result carries the rest.
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
