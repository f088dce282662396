"""The files that tool calls write: shell redirections, tee, cp, mv, sed -i, and tools that edit.

Read from what was asked for, write forms alone: a command that only reads a file is not counted,
and whether the disk took the write is not known. A shell command is split into words: quotes,
comments and here-documents are recognised, but nothing is expanded or run, and what stands inside
`$(…)` or `sh -c '…'` is text.
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
"""Characters of a command that are looked at."""
_REMEMBERED: Final = 1500
"""Characters of a command up to which it is remembered what it writes."""
_WORD = r"(?:[^\s'\"\\|&;()<>]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\")+"
_TOKEN = re.compile(
    r"(?P<blank>[ \t]+|\\\n)"
    r"|(?P<here><<-?[ \t]*(?P<quote>['\"]?)(?P<end>[\w.-]+)(?P=quote))"
    r"|(?P<redirect>(?:&|\d*)>>?[|&]?)"
    r"|(?P<operator>\n|\|\|?|&&?|;;?|[()]|<+)"
    r"|(?P<comment>(?<![^\s;&|(])#[^\n]*)"
    rf"|(?P<word>{_WORD})"
    r"|(?P<other>.)",
    re.DOTALL,
)
# Each alternative begins with a plain character: what lies between is then skipped fast.
_REDIRECT = re.compile(
    rf">(>?[|&]?)[ \t]*({_WORD})?"
    r"|<<-?[ \t]*(['\"]?)([\w.-]+)\3"
    r"|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\."
    r"|\#(?<![^\s;&|(]\#)[^\n]*"
    r"|\n",
    re.DOTALL,
)
_BARE_REDIRECT = re.compile(r">(>?[|&]?)[ \t]*([^\s|&;()<>]+)?")
_WRITING_PROGRAMS: Final = ("tee ", "cp ", "mv ", "sed -", "sudo ")
_NO_FILES: Final = ("/dev/", "/proc/self/fd/")
_PREFIXES: Final = frozenset({"sudo", "env", "nohup", "time", "exec", "command", "then", "do"})
_ASSIGNED = re.compile(r"\w+=")
_COPIERS: Final = frozenset({"cp", "mv"})
_QUOTES = re.compile(r"'([^']*)'|\"((?:[^\"\\]|\\.)*)\"|\\(.)", re.DOTALL)


def find_shell_writes(command: str) -> Sequence[str]:
    """The files it writes, in their order, as they are named; devices are left out."""
    if ">" not in command and not _may_write(command):
        return ()
    return _find_again(command) if len(command) <= _REMEMBERED else _find_written(command)


def _may_write(command: str) -> bool:
    """Whether a program may be in it that writes files by its own doing."""
    return "tee" in command or "cp" in command or "mv" in command or "-i" in command


def _find_written(command: str) -> Sequence[str]:
    if command.startswith(_WRITING_PROGRAMS) or _holds_writer(command):
        found = list(_find(command[:LONGEST]))
    elif ">" in command:
        is_bare = not ("'" in command or '"' in command or "<<" in command or "\\" in command)
        find = _find_bare_redirects if is_bare and "#" not in command else _find_redirects
        found = find(command[:LONGEST])
    else:
        return ()
    return tuple([name for name in found if name and not name.startswith(_NO_FILES)])


# The runs of one experiment give many of their commands word for word.
_find_again = lru_cache(maxsize=4096)(_find_written)


def _holds_writer(command: str) -> bool:
    """Whether a command that writes may stand behind another; single characters are found fast."""
    if not (
        "|" in command
        or "&" in command
        or ";" in command
        or "\n" in command
        or "=" in command  # a variable may be set before it
    ):
        return False
    return "tee " in command or "cp " in command or "mv " in command or "sed -" in command


def _find_bare_redirects(command: str) -> list[str]:
    """The targets of redirections where nothing is quoted."""
    return [name for mark, name in _BARE_REDIRECT.findall(command) if not mark.endswith("&")]


def _find_redirects(command: str) -> list[str]:
    """The targets of redirections; what is quoted, or the body of a here-document, is none."""
    found: list[str] = []
    at, ends = 0, []
    search = _REDIRECT.search
    while (match := search(command, at)) is not None:
        at = match.end()
        mark = match[0][0]
        if mark == ">":
            if not match[1].endswith("&"):
                found.append(_bare(match[2] or ""))
        elif mark == "<":
            ends.append(match[4] or "")
        elif mark == "\n" and ends:
            at, ends = _step_over(command, at, ends), []
    return found


def _find(command: str) -> Iterator[str]:
    words: list[str] = []
    is_target = False
    for kind, text in _tokens(command):
        if kind == "word":
            if is_target:
                yield _bare(text)
            else:
                words.append(text)
            is_target = False
        elif kind == "redirect":
            # `2>&1` copies a descriptor; `>&2` too.
            is_target = not text.endswith("&") or text == "&"
        elif kind == "operator":
            yield from _written_by(words)
            words, is_target = [], False
    yield from _written_by(words)


def _tokens(command: str) -> Iterator[tuple[str, str]]:
    """Words, redirections and operators; the bodies of here-documents are stepped over."""
    at, size = 0, len(command)
    ends: list[str] = []
    match = _TOKEN.match
    while at < size:
        found = match(command, at)
        if found is None:
            return
        kind, text = found.lastgroup or "", found[0]
        at = found.end()
        if found["here"] is not None:
            ends.append(found["end"])
        elif kind == "operator" and text == "\n" and ends:
            at = _step_over(command, at, ends)
            ends = []
            yield "operator", text
        elif kind in ("word", "redirect", "operator"):
            yield kind, text


def _step_over(command: str, at: int, ends: list[str]) -> int:
    """Where the bodies of here-documents end that begin at a line."""
    for end in ends:
        while True:
            found = command.find("\n", at)
            line = command[at : found if found >= 0 else len(command)]
            at += len(line)
            if found < 0 or line.strip("\t ") == end:
                break
            at += 1
    return at


def _bare(word: str) -> str:
    """A word without its quotes."""
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    return _QUOTES.sub(lambda found: found[1] or found[2] or found[3] or "", word)


def _written_by(words: list[str]) -> Iterator[str]:
    """What a simple command writes by its own doing."""
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
