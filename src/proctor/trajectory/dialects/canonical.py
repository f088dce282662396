"""Rows with an `event`: message, tool_call or tool_result.

The format has no arguments; where a row brings some, they are the call's.
"""

from proctor.trajectory.dialects.content import Blocks
from proctor.trajectory.dialects.message import make_turn, take_content
from proctor.trajectory.dialects.openai import take_result
from proctor.trajectory.dialects.row import Row
from proctor.trajectory.dialects.tools import read_call
from proctor.trajectory.entry import Object
from proctor.trajectory.turn import Turn


def parse_canonical(value: Object, line: int) -> Turn:
    """The turn of a row. An event that the turn does not show by itself stays in its rest."""
    row = Row(value)
    event = row.rest["event"]
    if event == "tool_call":
        del row.rest["event"]
        return _parse_call(row, line)
    if event == "tool_result" or row.rest.get("role") == "tool":
        if event == "tool_result":
            del row.rest["event"]
        return make_turn(row, Blocks(), line, results=[take_result(row, "tool_name")])
    if event == "message":
        del row.rest["event"]
    return make_turn(row, take_content(row), line)


def _parse_call(row: Row, line: int) -> Turn:
    own = Row({key: row.rest.pop(key) for key in _CALL_KEYS if key in row.rest})
    call = read_call(own, "tool_name", "arguments", "tool_call_id")
    return make_turn(row, take_content(row), line, [call])


_CALL_KEYS = ("tool_name", "arguments", "tool_call_id")
