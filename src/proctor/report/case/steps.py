"""The first steps of a trace, shown to readers without JavaScript.

Reads exactly what script/trace.js reads, which compares the page's text with its own result:
therefore this must be neither smarter nor stricter. Everything else reads traces through
`proctor.traces`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from proctor.json_values import check_values

_NAMES: Final = ("trajectory.jsonl", "conversation.jsonl", "trajectory.json")
_COMMAND_KEYS: Final = ("command", "cmd", "keystrokes")
_DEEPEST: Final = 200
_MOST_VALUES: Final = 4_000_000
_LARGEST_STEP: Final = 2**53
_ATIF_ROLES: Final = {"agent": "assistant"}
_PART_ROLES: Final = {
    "system-prompt": "system",
    "user-prompt": "user",
    "retry-prompt": "user",
    "text": "assistant",
}
_IN_STEP: Final = re.compile(r"steps/[^/]+/")
_TOOL_BLOCK: Final = re.compile(r"(^|_)tool_(use|result)\Z")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a trace."""

    step: int
    role: str
    tool: str
    text: str


def find_traces(paths: Sequence[str], named: Iterable[str]) -> list[str]:
    """The paths that can be traces, in order of preference."""
    places = [place + name for place in ("agent/", "", "artifacts/") for name in _NAMES]
    steps = [path for path in paths if _IN_STEP.match(path) and path.rsplit("/", 1)[-1] in _NAMES]
    wanted = dict.fromkeys(
        [*named, *places, *sorted(steps, key=lambda path: path.encode("utf-16-be"))]
    )
    return [path for path in wanted if path in paths]


def read_steps(path: str, data: bytes, most: int) -> list[Step]:
    """The first steps of a trace."""
    text = data.decode("utf-8", "replace")
    reading = _Reading()
    if path.endswith(".jsonl"):
        for line in text.split("\n"):
            if len(reading.shown) >= most:
                break
            reading.read_line(line)
    else:
        reading.read_atif(text, most)
    return reading.shown[:most]


@dataclass(slots=True)
class _Reading:
    step: int = 0
    names: dict[str, str] = field(default_factory=dict)
    shown: list[Step] = field(default_factory=list)

    def read_line(self, line: str) -> None:
        if not line.strip(" \t\r"):
            return
        try:
            value = _parse_shallow(line)
        except ValueError:
            self._show("unreadable", "", line)
            return
        for row in value if isinstance(value, list) else [value]:
            if isinstance(row, dict):
                self._read_row(row)

    def _read_row(self, row: dict[str, Any]) -> None:
        step = _whole(row.get("step"))
        if step is not None and isinstance(row.get("role"), str):
            self.step = step
            keys = ("content", "command", "stdout", "stderr", "output_summary")
            said = next((row[key] for key in keys if _text(row.get(key))), "")
            self._show(row["role"], _text(row.get("tool_name")), said)
        elif isinstance(row.get("parts"), list) and row.get("kind") in ("request", "response"):
            self._read_parts(row)
        elif not ("format" in row and "version" in row):
            self._read_message(row)

    def _read_message(self, row: dict[str, Any]) -> None:
        role, event, content = _text(row.get("role")), row.get("event"), row.get("content")
        if event == "tool_call":
            self._show_call(row.get("tool_name"), row.get("arguments"), row.get("tool_call_id"))
            return
        if event == "tool_result" or role in ("tool", "function"):
            name = _text(row.get("tool_name")) or _text(row.get("name"))
            self._show_result(name, content, row.get("tool_call_id"))
            return
        if role == "assistant":
            self.step += 1
        tools = [
            block for block in _objects(content) if _TOOL_BLOCK.search(_text(block.get("type")))
        ]
        calls = row.get("tool_calls")
        text = _join_texts(content) or _text(row.get("refusal"))
        if text or not (tools or (isinstance(calls, list) and calls)):
            self._show(role, "", text)
        for block in tools:
            self._read_block(block)
        for call in calls if isinstance(calls, list) else []:
            self._read_call(call)
        if isinstance(row.get("function_call"), dict):
            self._read_call(row["function_call"])

    def _read_block(self, block: dict[str, Any]) -> None:
        if block["type"].endswith("use"):
            self._show_call(block.get("name"), block.get("input"), block.get("id"))
        else:
            name = _text(block.get("name"))
            self._show_result(name, block.get("content"), block.get("tool_use_id"))

    def _read_call(self, given: object) -> None:
        call = _parse_or_none(given) if isinstance(given, str) else given
        if not isinstance(call, dict):
            return
        held = call["function"] if isinstance(call.get("function"), dict) else call
        self._show_call(held.get("name"), held.get("arguments"), call.get("id"))

    def _read_parts(self, row: dict[str, Any]) -> None:
        if row["kind"] == "response":
            self.step += 1
        for part in _objects(row["parts"]):
            kind, content = _text(part.get("part_kind")), part.get("content")
            if kind.endswith("tool-call"):
                self._show_call(part.get("tool_name"), part.get("args"), part.get("tool_call_id"))
            elif kind.endswith("tool-return"):
                name = _text(part.get("tool_name"))
                self._show_result(name, content, part.get("tool_call_id"))
            else:
                self._show(_PART_ROLES.get(kind, kind), "", _join_texts(content))

    def read_atif(self, text: str, most: int) -> None:
        document = _parse_or_none(text)
        for step in _objects(document.get("steps") if isinstance(document, dict) else None):
            if len(self.shown) >= most:
                return
            source = _text(step.get("source"))
            if source == "agent":
                self.step += 1
            self._show(_ATIF_ROLES.get(source, source), "", _join_texts(step.get("message")))
            for call in _objects(step.get("tool_calls")):
                name, arguments = call.get("function_name"), call.get("arguments")
                self._show_call(name, arguments, call.get("tool_call_id"))
            observation = step.get("observation")
            results = observation.get("results") if isinstance(observation, dict) else None
            for result in _objects(results):
                self._show_result("", result.get("content"), result.get("source_call_id"))

    def _show_call(self, name: object, given: object, call_id: object) -> None:
        tool = _text(name)
        if isinstance(call_id, str) and tool:
            self.names[call_id] = tool
        parsed = _parse_or_none(given) if isinstance(given, str) else given
        values = [parsed.get(key) for key in _COMMAND_KEYS] if isinstance(parsed, dict) else []
        self._show("tool_call", tool, next((each for each in values if isinstance(each, str)), ""))

    def _show_result(self, name: str, content: object, call_id: object) -> None:
        known = self.names.get(call_id, "") if isinstance(call_id, str) else ""
        self._show("tool_result", name or known, _join_texts(content))

    def _show(self, role: str, tool: str, text: str) -> None:
        self.shown.append(Step(self.step, role, tool, text))


def _parse_shallow(text: str) -> Any:
    """Parse JSON with limited depth and size."""
    # Untrusted input: a few bytes must not expand to gigabytes.
    check_values(text.encode("utf-8", "surrogatepass"), _MOST_VALUES)
    try:
        value = json.loads(text, parse_constant=_refuse, parse_int=_number)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    level, depth = [value], 0
    while level:
        if depth > _DEEPEST:
            raise ValueError("nested too deep")
        level = [inner for each in level for inner in _inside(each)]
        depth += 1
    return value


def _parse_or_none(text: str) -> Any:
    try:
        return _parse_shallow(text)
    except ValueError:
        return None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _number(digits: str) -> int | float:
    # JavaScript has only floats; converting very long digits to int would also be slow.
    return int(digits) if len(digits) < 20 else float(digits)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _whole(value: object) -> int | None:
    """A step number as JavaScript reads it: 1.0 is 1, and too large numbers are ignored."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    is_whole = isinstance(value, int) or value.is_integer()
    return int(value) if is_whole and abs(value) < _LARGEST_STEP else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _objects(value: object) -> Iterator[dict[str, Any]]:
    return (
        (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
    )


def _join_texts(content: object) -> str:
    if not isinstance(content, list):
        return _text(content)
    return "\n".join(text for text in map(_text_of_block, content) if text)


def _text_of_block(block: object) -> str:
    if not isinstance(block, dict):
        return _text(block)
    return next(
        (block[key] for key in ("text", "thinking", "refusal") if _text(block.get(key))), ""
    )
