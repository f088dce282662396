"""aec-bench's signals of a trajectory, rule for rule, odd ones included.

They stand beside our own numbers for those who compare with older reports. They differ: an entry of
any role is a message, only an exit code makes an error, and `cat output.md` counts as writing it.
"""

from typing import Final

import msgspec

from proctor.trajectory.entry import Entry
from proctor.trajectory.read import read_chunks

LONGEST_ERROR: Final = 200
OUTPUTS: Final = ("output.md", "output.jsonl")


class Signals(msgspec.Struct, kw_only=True):
    """The ten signals, by their own names."""

    has_transcript: int = 0
    """1 where there is a trace, 0 where there is none."""
    total_messages: int = 0
    assistant_messages: int = 0
    tool_result_messages: int = 0
    tool_call_count: int = 0
    bash_tool_call_count: int = 0
    """Calls of a tool that is called exactly `bash`."""
    tool_errors: int = 0
    used_calc_tool: bool = False
    wrote_output: bool = False
    """Whether a command has the text output.md or output.jsonl in it."""
    first_error: str | None = None
    """The first error that has a text, 200 characters of it."""


def read_trajectory_signals(path: str) -> Signals:
    """The signals of a trajectory; lines that cannot be read are left out.

    Raises:
        TraceError: the file cannot be read at all.
    """
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
    """Look whether a command names an output."""
    if any(name in command for name in OUTPUTS):
        signals.wrote_output = True


def note_error(signals: Signals, text: str) -> None:
    """Count an error with this text."""
    signals.tool_errors += 1
    if signals.first_error is None and text:
        signals.first_error = text[:LONGEST_ERROR]
