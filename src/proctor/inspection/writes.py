"""What tool calls write: redirections of a shell, and tools whose business is writing files.

It is read from what was asked for, write forms alone: a command that only reads a file is none.
Whether the disk took it is not known.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from proctor.inspection.calls import Call, find_texts
from proctor.inspection.shell_writes import find_shell_writes
from proctor.inspection.times import seconds_between
from proctor.trajectory.entry import Entry, Object

_MOST_FILES: Final = 1000
_SHOWN: Final = 20
_LONGEST: Final = 300
_WRITERS: Final = frozenset(
    {
        *("write", "write_file", "create_file", "create", "writefile", "save_file", "edit"),
        *("edit_file", "multiedit", "notebookedit", "str_replace", "insert", "append_file"),
        *("replace", "write_to_file", "replace_in_file", "file_write", "file_edit"),
    }
)
"""Tools that write the file they name, in lower case."""
_EDITORS: Final = frozenset(
    {"str_replace_editor", "str_replace_based_edit_tool", "file_editor", "text_editor"}
)
"""Tools that read or write, by their `command`."""
_EDITS: Final = frozenset({"create", "str_replace", "insert", "write", "edit", "append"})
_PATHS: Final = ("path", "file_path", "filename", "file", "target_file", "notebook_path", "name")
_PATCHERS: Final = frozenset({"apply_patch", "patch"})
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update) File: |\+\+\+ (?:b/)?)(\S[^\n\t]*)", re.MULTILINE)
_TOOLS: Final = _WRITERS | _EDITORS | _PATCHERS
_SHELLS: Final = frozenset({"bash", "sh", "shell"})
"""The usual names, so that they need not be looked up in lower case."""
_OUTPUTS: Final = ("output.md", "output.jsonl", "output.json")


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was to be written."""

    path: str
    """As the call names it."""
    times: int
    """How many calls write it."""
    first_step: int


class WriteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent set out to write."""

    calls: int = 0
    """Tool calls that write at least one file."""
    files: int = 0
    """Different files; counted no further than a thousand."""
    first_step: int | None = None
    """The step of the first such call."""
    seconds_to_first: float | None = None
    """From the first timestamp to that call; null without timestamps."""
    shown: tuple[Written, ...] = ()
    """The first twenty of the files."""
    wrote_output: bool = False
    """Whether one of them is called output.md, output.jsonl or output.json."""


class Writes:
    """The writing calls of one trace, as they come."""

    def __init__(self) -> None:
        self._calls = 0
        self._files: dict[str, list[int]] = {}
        self._first: tuple[int, str | None] | None = None
        self._output = False

    def see(self, call: Call, paths: Sequence[str], when: str | None) -> None:
        """Take in a call that writes these files, and its timestamp."""
        self._calls += 1
        self._first = self._first or (call.step, when)
        for path in paths:
            self._output = self._output or path.rpartition("/")[2] in _OUTPUTS
            short = path[:_LONGEST]
            found = self._files.get(short)
            if found is not None:
                found[0] += 1
            elif len(self._files) < _MOST_FILES:
                self._files[short] = [1, call.step]

    def finish(self, began: str | None) -> WriteSummary:
        """What there was in a trace that began at that time."""
        step, then = self._first or (None, None)
        shown = [
            Written(path=path, times=times, first_step=first)
            for path, (times, first) in list(self._files.items())[:_SHOWN]
        ]
        return WriteSummary(
            calls=self._calls,
            files=len(self._files),
            first_step=step,
            seconds_to_first=seconds_between(began, then),
            shown=tuple(shown),
            wrote_output=self._output,
        )


def find_writes(entry: Entry, tool: str, command: str) -> Sequence[str]:
    """The files that a call of a tool asks to be written."""
    if tool not in _SHELLS and (lowered := tool.lower()) in _TOOLS:
        return _find_named(entry, lowered)
    # Arguments that stand in for a command are JSON, and no shell reads them.
    is_json = not entry.command and command.startswith("{")
    return () if is_json else find_shell_writes(command)


def _find_named(entry: Entry, tool: str) -> list[str]:
    arguments: Object = entry.arguments or {}
    if tool in _PATCHERS:
        texts = find_texts([*arguments.values(), entry.command])
        return [found[1].strip() for text in texts for found in _PATCHED.finditer(text[: 1 << 16])]
    if tool in _EDITORS and arguments.get("command") not in _EDITS:
        return []
    return find_texts(arguments.get(key) for key in _PATHS)[:1]


def merge_writes(each: Sequence[WriteSummary]) -> WriteSummary:
    """The writes of the parts of one trial; the same name in two parts is two files."""
    first = next((one for one in each if one.calls), WriteSummary())
    return WriteSummary(
        calls=sum(one.calls for one in each),
        files=sum(one.files for one in each),
        first_step=first.first_step,
        seconds_to_first=first.seconds_to_first,
        shown=tuple(file for one in each for file in one.shown)[:_SHOWN],
        wrote_output=any(one.wrote_output for one in each),
    )
