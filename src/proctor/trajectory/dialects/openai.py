"""Rows with `tool_calls` or the older `function_call`, and rows of role tool or function.

Arguments are JSON text or an object; a call may itself be JSON text. A call that is neither stays
in `rest["tool_calls"]`.
"""

from typing import Any

from proctor.trajectory.dialects.content import Blocks
from proctor.trajectory.dialects.message import make_turn, take_content
from proctor.trajectory.dialects.row import Row
from proctor.trajectory.dialects.tools import parse_object, read_call, take_arguments, take_output
from proctor.trajectory.entry import Object
from proctor.trajectory.turn import ToolCall, ToolResult, Turn

RESULT_ROLES = ("tool", "function")


def parse_openai(value: Object, line: int) -> Turn:
    """The turn of a row."""
    row = Row(value)
    calls = _take_calls(row)
    if row.rest.get("role") in RESULT_ROLES:
        return make_turn(row, Blocks(), line, calls, [take_result(row, "name")])
    return make_turn(row, take_content(row), line, calls)


def take_result(row: Row, name: str) -> ToolResult:
    """The one result that a row is, with what its text does not hold of the content."""
    text = take_output(row)
    rest = {"content": row.rest.pop("content")} if "content" in row.rest else {}
    return ToolResult(
        text=text,
        name=row.take_text(name),
        call_id=row.take_text("tool_call_id"),
        is_error=row.take_flag("is_error"),
        rest=rest,
    )


def _take_calls(row: Row) -> list[ToolCall]:
    calls: list[ToolCall] = []
    strange: list[Any] = []
    for given in row.take_list("tool_calls") or []:
        call = parse_object(given) if isinstance(given, str) else given
        if isinstance(call, dict):
            calls.append(_read_call(call))
        else:
            strange.append(given)
    if strange:
        row.rest["tool_calls"] = strange
    elif row.rest.get("tool_calls") == "":
        # How one evaluation service writes that there are none.
        del row.rest["tool_calls"]
    function = row.take_object("function_call")
    if function is not None:
        calls.append(read_call(Row(function), "name", "arguments", "id"))
    return calls


def _read_call(given: Object) -> ToolCall:
    """A call as {id, type, function: {name, arguments}}, or with name and arguments in itself."""
    row = Row(given)
    if row.rest.get("type") == "function":
        del row.rest["type"]
    for holder, arguments in (("function", "arguments"), ("custom", "input")):
        inner = row.take_object(holder)
        if inner is not None:
            return _read_held_call(row, holder, Row(inner), arguments)
    return read_call(row, "name", "arguments", "id")


def _read_held_call(row: Row, holder: str, inner: Row, key: str) -> ToolCall:
    arguments, unparsed = take_arguments(inner, key)
    name = inner.take_text("name") or ""
    call_id = row.take_text("id")
    rest = row.rest | {holder: inner.rest} if inner.rest else row.rest
    return ToolCall(name=name, arguments=arguments, unparsed=unparsed, call_id=call_id, rest=rest)
