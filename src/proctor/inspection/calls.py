"""Tool calls that wait for their results: no id pairs the two, only their order within a step."""

from collections.abc import Iterable
from typing import Final

import msgspec

from proctor.trajectory.entry import Entry, Object

MOST_OPEN: Final = 256
"""Calls of one step that are remembered at a time."""
_COMMANDS: Final = ("command", "cmd", "keystrokes")
_ENCODE = msgspec.json.Encoder().encode


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call, as far as its result has to know it."""

    step: int
    tool: str
    command: str
    """The command, else the arguments as JSON."""
    key: int
    """The same for calls of the same tool with the same command; of this process only."""


def find_command(arguments: Object | None) -> str:
    """What a call's arguments ask for: a command among them, else all of them as JSON."""
    if not arguments:
        return ""
    for key in _COMMANDS:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return " ".join(value)
    try:
        return _ENCODE(arguments).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError):
        return ""  # nested too deeply, or half a character


def take_answered(waiting: list[Call], entry: Entry) -> Call:
    """Take out the call that a result belongs to; without one, all that the result itself says."""
    name, step = entry.tool_name, entry.step
    if len(waiting) == 1 and waiting[0].step == step and waiting[0].tool == name:
        return waiting.pop()  # as most are, and found without a loop
    for at, call in enumerate(waiting):
        if call.step == step and (not name or call.tool == name):
            del waiting[at]
            return call
    tool = name or ""
    return Call(step, tool, "", hash((tool, "")))


def find_texts(values: Iterable[object]) -> list[str]:
    """Those of them that are texts with something in them."""
    return [value for value in values if isinstance(value, str) and value]
