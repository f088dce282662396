"""aec-bench's signals of a conversation, from its raw rows, rule for rule.

Two dialects are known to it: content that is a list of blocks, and `tool_calls` beside the content.
Errors are found by words, so that a success which prints one of them is counted too.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from proctor.inspection.compat_signals import Signals, note_command, note_error
from proctor.trajectory.entry import Object
from proctor.trajectory.lines import OpenTrace, Oversized

_CALC: Final = "heat_load_calc.py"
_WORDS: Final = (
    "Syntax error",
    "Error:",
    "Traceback (most recent",
    "command not found",
    "No such file or directory",
    "Permission denied",
)


def read_conversation_signals(path: str) -> Signals:
    """The signals of a conversation; an empty one is a transcript too.

    Raises:
        TraceError: the file cannot be read at all.
    """
    signals = Signals(has_transcript=1)
    for row in _rows(path):
        signals.total_messages += 1
        role = row.get("role")
        if role == "assistant":
            _add_assistant(signals, row)
        elif role in ("tool", "user"):
            _add_results(signals, row, str(role))
    return signals


def _rows(path: str) -> Iterator[Object]:
    """The rows that are objects; what is no JSON is left out."""
    trace = OpenTrace(path)
    try:
        for piece in trace.pieces():
            if isinstance(piece, Oversized):
                continue
            for line in piece.split(b"\n"):
                row = _parse(line) if line.strip() else None
                if isinstance(row, dict):
                    yield row
    finally:
        trace.close()


def _parse(line: bytes) -> object:
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        # NaN and half characters are read by the peer, and so here.
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _add_assistant(signals: Signals, row: Object) -> None:
    signals.assistant_messages += 1
    content, calls = row.get("content"), row.get("tool_calls")
    if isinstance(content, list):
        commands = _add_blocks(signals, content)
    elif isinstance(calls, list):
        commands = _add_calls(signals, calls)
    else:
        commands = []
    for command in commands:
        note_command(signals, command)
        signals.used_calc_tool = signals.used_calc_tool or _CALC in command


def _add_blocks(signals: Signals, content: list[Any]) -> list[str]:
    commands = []
    for block in _objects(content, "tool_use"):
        signals.tool_call_count += 1
        signals.bash_tool_call_count += block.get("name") == "bash"
        given = block.get("input")
        command = given.get("command") if isinstance(given, dict) else None
        if isinstance(command, str):
            commands.append(command)
    return commands


def _add_calls(signals: Signals, calls: list[Any]) -> list[str]:
    commands = []
    for call in calls:
        if not isinstance(call, dict):
            continue
        signals.tool_call_count += 1
        function = call.get("function")
        if not isinstance(function, dict) or function.get("name") != "bash":
            continue
        signals.bash_tool_call_count += 1
        arguments = function.get("arguments")
        parsed = _parse(arguments.encode(errors="replace")) if isinstance(arguments, str) else None
        command = parsed.get("command") if isinstance(parsed, dict) else None
        if isinstance(command, str):
            commands.append(command)
    return commands


def _add_results(signals: Signals, row: Object, role: str) -> None:
    content = row.get("content")
    results = _objects(content, "tool_result") if isinstance(content, list) else []
    if isinstance(content, list):
        signals.tool_result_messages += len(results)
    else:
        signals.tool_result_messages += role == "tool"
    if role == "tool":
        text = content if isinstance(content, str) else ""
    else:
        text = _text_of(results[0].get("content")) if results else ""
    if _is_error(text):
        note_error(signals, text)


def _objects(content: list[Any], kind: str) -> list[Object]:
    return [each for each in content if isinstance(each, dict) and each.get("type") == kind]


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return " ".join(text for text in texts if isinstance(text, str))


def _is_error(text: str) -> bool:
    if "[exit code: " in text and "[exit code: 0]" not in text:
        return True
    return any(word in text for word in _WORDS)
