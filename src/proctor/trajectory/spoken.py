"""A conversation as entries of a trajectory.

A conversation has no steps: each turn of the assistant begins one, and what comes before the first
is step 0. Results go with the step whose turn they answer. What a turn holds that an entry has no
field for goes into the entry's metadata, under `conversation`, so that nothing is dropped.
"""

from collections.abc import Iterable, Iterator

from proctor.trajectory.entry import Entry, Object
from proctor.trajectory.turn import ToolCall, ToolResult, Turn

_COMMAND_KEYS = ("command", "cmd", "keystrokes")
_ROLES = {"developer": "system"}
"""Roles that a trajectory knows by another name."""


def turns_to_entries(turns: Iterable[Turn]) -> Iterator[Entry]:
    """The entries that turns amount to, in their order."""
    step = 0
    for turn in turns:
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
    # An exit code is not made up: whether it was an error stands in the metadata.
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
