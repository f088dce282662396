"""aec-bench's numbers of one or more trials, exactly as it computes them.

The definitions, and their known mistakes, are aec-bench's: errors in a conversation are found by
words, and the two kinds of trace disagree about what an error is. summary.py has our definitions.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from proctor.record.model import TrialRecord
from proctor.traces.entry import Entry, Object
from proctor.traces.lines import OpenTrace, Oversized
from proctor.traces.trajectory import read_chunks

LONGEST_ERROR: Final = 200
OUTPUTS: Final = ("output.md", "output.jsonl")


class Signals(msgspec.Struct, kw_only=True):
    """The ten signals, by aec-bench's names."""

    has_transcript: int = 0
    """1 if there is a trace, else 0."""
    total_messages: int = 0
    assistant_messages: int = 0
    tool_result_messages: int = 0
    tool_call_count: int = 0
    bash_tool_call_count: int = 0
    """Calls of a tool that is called exactly `bash`."""
    tool_errors: int = 0
    used_calc_tool: bool = False
    wrote_output: bool = False
    """Whether a command contains the text output.md or output.jsonl."""
    first_error: str | None = None
    """The first error with a text, shortened to 200 characters."""


def read_trajectory_signals(path: str) -> Signals:
    """The signals of a trajectory; unreadable lines are left out."""
    signals = Signals()
    for chunk in read_chunks(path, salvage=True):
        for entry in chunk.entries:
            signals.has_transcript = 1
            if entry.call_type != "warmup":
                _add(signals, entry)
    return signals


def _add(signals: Signals, entry: Entry) -> None:
    signals.total_messages += 1
    match entry.role:
        case "assistant":
            signals.assistant_messages += 1
        case "tool_call":
            _add_call(signals, entry)
        case "tool_result":
            signals.tool_result_messages += 1
            if entry.exit_code is not None and entry.exit_code != 0:
                note_error(signals, entry.stderr or entry.stdout or "")


def _add_call(signals: Signals, entry: Entry) -> None:
    signals.tool_call_count += 1
    name = entry.tool_name or ""
    signals.bash_tool_call_count += name == "bash"
    signals.used_calc_tool = signals.used_calc_tool or "calc" in name
    note_command(signals, entry.command or "")


def note_command(signals: Signals, command: str) -> None:
    """Note whether a command names an output file."""
    if any(name in command for name in OUTPUTS):
        signals.wrote_output = True


def note_error(signals: Signals, text: str) -> None:
    """Count an error with this text."""
    signals.tool_errors += 1
    if signals.first_error is None and text:
        signals.first_error = text[:LONGEST_ERROR]


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
    """The signals of a conversation; an empty one counts as a transcript too."""
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
    """The rows that are objects; lines that are not JSON are left out."""
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
        # aec-bench accepts NaN and lone surrogates, so they are accepted here too.
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


def read_signals(trajectory: str | None, conversation: str | None) -> Signals:
    """The signals of a trial from its files: a trajectory hides the conversation."""
    # Even an empty trajectory hides the conversation, as it does in aec-bench.
    if trajectory is not None:
        return read_trajectory_signals(trajectory)
    if conversation is not None:
        return read_conversation_signals(conversation)
    return Signals()


def make_summary_record(record: TrialRecord, signals: Signals) -> Object:
    """Make the line of aec-bench's `report traces` for a trial, by its names."""
    segments = record.task.task_id.split("/")
    result, cost, timing = record.outputs.agent_result or {}, record.cost, record.timing
    numbers = list(_numbers(record.evaluation.breakdown))
    return {
        "trial_id": record.trial_id,
        "model": record.agent.model,
        "task": segments[-1],
        "task_type": segments[-2] if len(segments) > 1 else segments[0],
        # Null if not scored, which aec-bench cannot represent.
        "reward": record.evaluation.reward,
        # As the agent reports it, 0 if it does not.
        "turns_used": _whole(result.get("turns_used")),
        "max_turns": _whole(result.get("max_turns")),
        "tokens_in": (cost.tokens_in if cost else None) or 0,
        "tokens_out": (cost.tokens_out if cost else None) or 0,
        # Of the whole trial if those of the agent are unknown or 0.
        "duration_sec": float(timing.agent_seconds or timing.total_seconds),
        "tool_calls": signals.tool_call_count,
        "tool_errors": signals.tool_errors,
        "used_calc_tool": signals.used_calc_tool,
        "wrote_output": signals.wrote_output,
        "fields_correct": sum(number == 1.0 for number in numbers),
        "fields_total": len(numbers),
        "first_error": signals.first_error,
        "trace_path": record.outputs.trajectory_path or record.outputs.conversation_path or "",
    }


def _whole(value: Any) -> int | None:
    """Convert a number as aec-bench does; None where it would crash."""
    try:
        return int(value or 0)
    except (ValueError, TypeError, OverflowError):
        return None


def _numbers(value: Any) -> Iterator[float]:
    """Every number in nested objects, including booleans; lists are not searched."""
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            left += found.values()
        elif isinstance(found, int | float):
            yield found


def aggregate(signals: Sequence[Signals]) -> dict[str, float]:
    """Aggregate trials as aec-bench does; zeros if there are none.

    Every mean is over all of them, with 0 for those without a transcript.
    """
    return {
        "n_trials": len(signals),
        "trials_with_transcript": sum(each.has_transcript for each in signals),
        "mean_assistant_messages": _mean([each.assistant_messages for each in signals]),
        "mean_tool_call_count": _mean([each.tool_call_count for each in signals]),
        "mean_bash_tool_call_count": _mean([each.bash_tool_call_count for each in signals]),
    }


def _mean(counts: Sequence[int]) -> float:
    return math.fsum(counts) / len(counts) if counts else 0.0
