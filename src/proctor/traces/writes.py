"""The files that tool calls write: shell redirections, tee, cp, mv, sed -i, and tools that edit.

Derived from the calls, and only from forms that write: a command that only reads a file is not
counted, and whether the write succeeded is unknown. A shell command is split into words: quotes,
comments and here-documents are recognised, but nothing is expanded or run, and the contents of
`$(…)` or `sh -c '…'` are treated as text.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from proctor.traces.calls import Call, find_texts
from proctor.traces.entry import Entry, Object
from proctor.traces.times import seconds_between

LONGEST: Final = 1 << 16
"""Most characters of a command that are searched."""
# Longer commands are not cached.
_CACHED: Final = 1500
_QUOTED = r"'[^']*'|\"(?:[^\"\\]|\\.)*\""
_COMMENT = r"(?<![^\s;&|(])#[^\n]*"
_TOKEN = re.compile(
    r"((?:&|\d*)>>?[|&]?)"  # a redirection
    r"|(\n|\|\|?|&&?|;;?|[()]|<+)"  # an operator
    rf"|\\\n|{_COMMENT}"
    rf"|((?:[^\s'\"\\|&;()<>]|\\.|{_QUOTED})+)",  # a word
    re.DOTALL,
)
# A here-document from its operator to the end of its body; or something quoted, which is not one.
_HERE = re.compile(
    rf"{_QUOTED}|\\.|{_COMMENT}|<<-?[ \t]*(['\"]?)(?P<end>[\w.-]+)\1(?P<rest>[^\n]*\n)"
    r".*?(?:^[\t ]*(?P=end)[\t ]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
# Matches every command that writes a file, and few others.
_MAY_WRITE = re.compile(r">(?!&\d|\s*/dev/)|\b(?:tee|cp|mv|sed)\b")
_NO_FILES: Final = ("/dev/", "/proc/self/fd/")
_PREFIXES: Final = frozenset({"sudo", "env", "nohup", "time", "exec", "command", "then", "do"})
_ASSIGNED = re.compile(r"\w+=")
_COPIERS: Final = frozenset({"cp", "mv"})
_QUOTES = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)", re.DOTALL)


def list_shell_writes(command: str) -> Sequence[str]:
    """The files that a command writes, in order, as named; devices are left out."""
    if not _MAY_WRITE.search(command):
        return ()
    # Runs of one experiment repeat many of their commands. Long ones would fill the memory.
    return _find_cached(command) if len(command) <= _CACHED else _find_files(command)


def _find_files(command: str) -> Sequence[str]:
    # Programs written as a command can be megabytes; files are named at the beginning.
    found = _find(command[:LONGEST])
    return tuple(name for name in found if name and not name.startswith(_NO_FILES))


_find_cached = lru_cache(maxsize=4096)(_find_files)


def _find(command: str) -> Iterator[str]:
    words: list[str] = []
    redirect = ""
    for redirection, operator, word in _TOKEN.findall(_without_bodies(command)):
        if redirection:
            redirect = redirection
        elif operator:
            yield from _written_by(words)
            words, redirect = [], ""
        elif word and not redirect:
            words.append(word)
        elif word:
            # `>&` is followed by a descriptor, as in `2>&1`, not by a file.
            if not redirect.endswith("&"):
                yield _bare(word)
            redirect = ""
    yield from _written_by(words)


def _without_bodies(command: str) -> str:
    """The command without its here-documents."""
    # Repeated, because one line can begin several of them.
    while "<<" in command:
        shorter = _HERE.sub(lambda found: found["rest"] or found[0], command)
        if shorter == command:
            break
        command = shorter
    return command


def _bare(word: str) -> str:
    """A word without its quotes."""
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    return _QUOTES.sub(lambda found: found[1] or found[2] or found[3] or "", word)


def _written_by(words: list[str]) -> Iterator[str]:
    """The files that a simple command itself writes."""
    at = 0
    while at < len(words) and (words[at] in _PREFIXES or _ASSIGNED.match(words[at])):
        at += 1
    if at == len(words):
        return
    name, arguments = words[at].rpartition("/")[2], words[at + 1 :]
    plain = [_bare(word) for word in arguments if not word.startswith("-")]
    if name == "tee":
        yield from plain
    elif name in _COPIERS and len(plain) > 1:
        yield plain[-1]
    elif name == "sed" and any(word.startswith(("-i", "--in-place")) for word in arguments):
        yield from plain[1:]


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
_OUTPUTS: Final = ("output.md", "output.jsonl", "output.json")


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a call writes."""

    path: str
    """As named in the call."""
    times: int
    """Number of calls that write it."""
    first_step: int


class WriteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The files that the agent's calls write."""

    calls: int = 0
    """Tool calls that write at least one file."""
    files: int = 0
    """Number of different files, at most a thousand."""
    first_step: int | None = None
    """The step of the first such call."""
    seconds_to_first: float | None = None
    """Seconds from the first timestamp to that call; null without timestamps."""
    shown: tuple[Written, ...] = ()
    """The first twenty files."""
    wrote_output: bool = False
    """Whether one of them is called output.md, output.jsonl or output.json."""


class Writes:
    """Collects the writing calls of one trace."""

    def __init__(self) -> None:
        self._calls = 0
        self._files: dict[str, list[int]] = {}
        self._first: tuple[int, str | None] | None = None
        self._output = False

    def add(self, call: Call, paths: Sequence[str], when: str | None) -> None:
        """Count a call that writes these files, with its timestamp."""
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
        """Summarise the writes of a trace that began at a time."""
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


def list_writes(entry: Entry, tool: str, command: str) -> Sequence[str]:
    """The files that a tool call writes."""
    if (lowered := tool.lower()) in _TOOLS:
        return _find_named(entry, lowered)
    # Without a command, `command` is the arguments as JSON, which is not shell text.
    is_json = not entry.command and command.startswith("{")
    return () if is_json else list_shell_writes(command)


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
