"""Tool calls: pairing results with calls, repeated calls, and the files that calls write.

Calls and results have no common id, so they are paired by their order within a step.

Written files are derived from the calls: shell redirections, tee, cp, mv, sed -i, and tools that
edit. Only forms that write count: a command that only reads a file does not, and whether the write
succeeded is unknown. A shell command is split into words: quotes, comments and here-documents are
recognised, but nothing is expanded or run, and the contents of `$(…)` or `sh -c '…'` are text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from proctor.traces.counts import merge_fields
from proctor.traces.entry import Entry, Object
from proctor.traces.usage import seconds_between

MOST_OPEN: Final = 256
"""Most calls of one step that are remembered."""
_COMMANDS: Final = ("command", "cmd", "keystrokes")
# Characters kept of either end of a text.
_END: Final = 240
_ENCODE = msgspec.json.Encoder().encode


class Call(msgspec.Struct, frozen=True, gc=False):
    """A tool call, for pairing it with its result."""

    step: int
    tool: str
    command: str
    """The command, else the arguments as JSON."""
    key: int
    """Equal for calls of the same tool with the same command; valid in this process only."""


def find_command(arguments: Object | None) -> str:
    """The command in a call's arguments, else all arguments as JSON."""
    if not arguments:
        return ""
    # Keystrokes count as a command here: what a terminal was sent is what the agent asked for.
    for key in _COMMANDS:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return " ".join(value)
    try:
        return _ENCODE(arguments).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError, TypeError):
        return ""  # nested too deeply, or a lone surrogate


def take_answered(waiting: list[Call], entry: Entry) -> Call:
    """Remove and return the call that a result answers; without one, make it from the result."""
    name = entry.tool_name or ""
    # Results come in the order of their calls, so the first call that fits is the one.
    for at, call in enumerate(waiting):
        if call.step == entry.step and (not name or call.tool == name):
            return waiting.pop(at)
    return Call(entry.step, name, "", hash((name, "")))


def shorten(text: str) -> str:
    """Both ends of a long text; a short text unchanged."""
    return text if len(text) <= 2 * _END else f"{text[:_END]} … {text[-_END:]}"


def find_texts(values: Iterable[object]) -> list[str]:
    """The values that are non-empty texts."""
    return [value for value in values if isinstance(value, str) and value]


MOST_CALLS: Final = 1 << 16
"""Most different calls that are remembered; further ones are only compared with the last."""
_MOST_REPEATED: Final = 1 << 12
_MOST_STEPS: Final = 10
_SHOWN: Final = 5


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was made more than once."""

    tool: str
    command: str
    """Both ends, if it is long."""
    times: int
    """Total number of calls."""
    steps: tuple[int, ...]
    """The first ten steps with the call."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The same call several times in a row."""

    tool: str
    command: str
    times: int
    first_step: int
    last_step: int
    part: str = ""
    """The step of a multi-step trial."""


class LoopSummary(msgspec.Struct, kw_only=True):
    """Repeated calls; counted while the trace is read."""

    repeats: int = 0
    """Calls with a tool and command that occurred before."""
    longest: Run | None = None
    """The longest run of at least two."""
    most: tuple[Repeated, ...] = ()
    """The most frequent calls, at most five."""
    is_exact: bool = True
    """False if there were more different calls than are remembered."""


class Loops:
    """Collects the calls of one trace."""

    def __init__(self) -> None:
        self._found = LoopSummary()
        self._first_steps: dict[int, int] = {}
        self._repeated: dict[int, tuple[Call, list[int]]] = {}
        """Calls made more than once, with their count and first steps."""
        self._last: Call | None = None
        self._times = self._began = 0

    def add(self, call: Call) -> None:
        """Count a call."""
        if self._last is not None and self._last.key == call.key:
            self._times += 1
        else:
            self._end_run()
            self._times, self._began = 1, call.step
        self._last = call
        if call.key not in self._first_steps:
            if len(self._first_steps) < MOST_CALLS:
                self._first_steps[call.key] = call.step
            else:
                self._found.is_exact = False
            return
        self._found.repeats += 1
        if call.key not in self._repeated:
            if len(self._repeated) >= _MOST_REPEATED:
                self._found.is_exact = False
                return
            # Shortened at once: thousands of long commands would be too many to keep.
            kept = msgspec.structs.replace(call, command=shorten(call.command))
            self._repeated[call.key] = kept, [1, self._first_steps[call.key]]
        counted = self._repeated[call.key][1]
        counted[0] += 1
        if len(counted) <= _MOST_STEPS:
            counted.append(call.step)

    def _end_run(self) -> None:
        last, longest = self._last, self._found.longest
        if last is not None and self._times > (longest.times if longest else 1):
            self._found.longest = Run(
                tool=last.tool,
                command=shorten(last.command),
                times=self._times,
                first_step=self._began,
                last_step=last.step,
            )

    def finish(self) -> LoopSummary:
        """The repeated calls of the whole trace."""
        self._end_run()
        repeated = [
            Repeated(tool=call.tool, command=call.command, times=times, steps=tuple(steps))
            for call, (times, *steps) in self._repeated.values()
        ]
        ranked = sorted(repeated, key=lambda each: (-each.times, each.steps[0]))
        self._found.most = tuple(ranked[:_SHOWN])
        return self._found


def merge_loops(parts: dict[str, LoopSummary]) -> LoopSummary:
    """Merge the loops of a trial's parts; calls are not compared across parts."""
    runs = [
        msgspec.structs.replace(each.longest, part=part)
        for part, each in parts.items()
        if each.longest
    ]
    most = [one for each in parts.values() for one in each.most]
    return merge_fields(
        list(parts.values()),
        longest=max(runs, key=lambda run: run.times, default=None),
        most=tuple(sorted(most, key=lambda each: -each.times)[:_SHOWN]),
        is_exact=all(each.is_exact for each in parts.values()),
    )


# Written files


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
    # Here-documents are left out; repeatedly, because one line can begin several of them.
    while "<<" in command:
        shorter = _HERE.sub(lambda found: found["rest"] or found[0], command)
        if shorter == command:
            break
        command = shorter
    words: list[str] = []
    redirect = ""
    for redirection, operator, word in _TOKEN.findall(command):
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
_SHOWN_FILES: Final = 20
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


class WriteSummary(msgspec.Struct, kw_only=True):
    """The files that the agent's calls write; counted while the trace is read."""

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
        self._found = WriteSummary()
        self._files: dict[str, list[int]] = {}
        self._first_time: str | None = None

    def add(self, call: Call, paths: Sequence[str], when: str | None) -> None:
        """Count a call that writes these files, with its timestamp."""
        self._found.calls += 1
        if self._found.first_step is None:
            self._found.first_step, self._first_time = call.step, when
        for path in paths:
            self._found.wrote_output |= path.rpartition("/")[2] in _OUTPUTS
            short = path[:_LONGEST]
            if (found := self._files.get(short)) is not None:
                found[0] += 1
            elif len(self._files) < _MOST_FILES:
                self._files[short] = [1, call.step]

    def finish(self, began: str | None) -> WriteSummary:
        """Summarise the writes of a trace that began at a time."""
        self._found.files = len(self._files)
        self._found.seconds_to_first = seconds_between(began, self._first_time)
        self._found.shown = tuple(
            Written(path=path, times=times, first_step=first)
            for path, (times, first) in list(self._files.items())[:_SHOWN_FILES]
        )
        return self._found


def list_writes(entry: Entry, tool: str, command: str) -> Sequence[str]:
    """The files that a tool call writes."""
    tool = tool.lower()
    if tool not in _TOOLS:
        # Without a command, `command` is the arguments as JSON, which is not shell text.
        is_json = not entry.command and command.startswith("{")
        return () if is_json else list_shell_writes(command)
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
    return merge_fields(
        each,
        first_step=first.first_step,
        seconds_to_first=first.seconds_to_first,
        shown=tuple(file for one in each for file in one.shown)[:_SHOWN_FILES],
        wrote_output=any(one.wrote_output for one in each),
    )
