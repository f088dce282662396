"""The shell commands of a trace, with their output, and how much of a script they repeat.

Which tools are shells is a fixed list: a call of any other tool is `Unreplayable`, with the reason.
Tools without effects outside of their harness (a plan, a thought, "I am done") are left out. Does
not run anything.

A script is compared part by part. A part is a line, or a command between `;`, `&&` and `||`: joined
commands equal commands on separate lines. Blanks, quotes, backslashes and comments are ignored, so
`echo  'a'` and `echo "a"` are equal; so are blank lines, `#!` and `set -e`. The share is that of
the script's characters, counting each different part once: a long part means more than `cd /app`.
Only scripts that two people would not write alike are compared: at least three different parts and
eighty characters. A sequence of commands needs three commands and eighty characters, or two hundred
characters.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from proctor.sentence import render_percent
from proctor.traces.atif.carry import ATIF_KEY, pair_results
from proctor.traces.entry import Entry, Object

SHELLS: Final = frozenset(
    {
        *("bash", "sh", "shell", "terminal", "local_shell", "shell_command"),
        *("execute_bash", "bash_command", "exec_command", "run_command", "run_shell_command"),
        *("developer__shell", "developer.shell"),
    }
)
"""Tools that run a shell command, in lower case: ours, and those of harbor's agents."""
PERSISTENT_SHELLS: Final = frozenset({"Bash", "execute_bash", "terminal", "exec_command"})
"""Shells that persist between calls, so that a `cd` or an `export` lasts."""
TOOLS_WITHOUT_EFFECT: Final = frozenset(
    {"think", "finish", "mark_task_complete", "update_plan", "todowrite", "todoread"}
)
"""Tools without effects outside of their harness, in lower case."""
TIMED_OUT: Final = -1
"""Exit code of a command that timed out, in trajectories."""
MALFORMED: Final = "malformed"
"""Key in a call's carried data: the harness ran nothing for it."""
CUT: Final = "characters_cut"
"""Key in a result's carried data: number of characters cut from the middle of the output."""

_COMMANDS = ("command", "cmd")
_DIRECTORIES = ("cwd", "workdir", "working_dir", "working_directory", "directory", "dir_path")
# Argument names of a limit with a known unit, and how many of the unit make a second.
_SECONDS = {"timeout_sec": 1, "timeout_seconds": 1, "timeout_ms": 1000}
# Tools whose `timeout` is in milliseconds; for others the unit is unknown.
_MILLISECONDS = frozenset({"Bash"})
_NOT_ALONE = {
    "is_input": "is input for a program that is already running",
    "run_in_background": "was put into the background",
}
_REDACTED = re.compile(r"\[redacted(?::[^\]\n]*)?\]")


class Observation(msgspec.Struct, frozen=True):
    """The recorded output of a command."""

    text: str | None
    """The output; None if only its beginning is known."""
    exit_code: int | None
    """None if not recorded."""
    beginning: str | None = None
    """The beginning of the output, if the rest was not kept."""
    ending: str | None = None
    """The end of the output, if that was kept too."""


class ShellCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command that can be run again."""

    step: int
    """The step of the trace."""
    tool: str
    command: str
    cwd: str | None = None
    """None: the environment's initial directory."""
    timeout_sec: int | None = None
    """Whole seconds, rounded up; None: no limit recorded."""
    observation: Observation | None = None
    """None if the trace ends before it."""


class Unreplayable(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that cannot be run again."""

    step: int
    tool: str
    reason: str
    """The end of a sentence that begins with the tool."""

    def __str__(self) -> str:
        return f"step {self.step}: tool {self.tool or '(unnamed)'!r} {self.reason}"


type Call = ShellCommand | Unreplayable


def read_calls(entries: Sequence[Entry]) -> list[Call]:
    """Every tool call that may have had an effect, in order."""
    tools = [entry for entry in entries if entry.role in ("tool_call", "tool_result")]
    calls = [entry for entry in tools if entry.role == "tool_call"]
    results = [entry for entry in tools if entry.role == "tool_result"]
    pairs = pair_results((each.role == "tool_call", each.tool_name or None) for each in tools)
    seen: dict[int, Entry] = {}
    for result, call in zip(results, pairs, strict=True):
        if call is not None:
            seen.setdefault(call, result)
    return [
        _read_call(entry, seen.get(at))
        for at, entry in enumerate(calls)
        if (entry.tool_name or "").lower() not in TOOLS_WITHOUT_EFFECT
        and MALFORMED not in _carried_with(entry)
    ]


def render_cut(n_characters: int) -> str:
    """The mark in an output where characters of its middle were cut."""
    return f"\n[… {n_characters:,} characters cut here …]\n"


def _carried_with(entry: Entry) -> Object:
    """What the harness stored with an entry beyond its fields."""
    held = (entry.metadata or {}).get(ATIF_KEY)
    extra = held.get("extra") if isinstance(held, dict) else None
    return extra if isinstance(extra, dict) else {}


def read_commands(entries: Iterable[Entry]) -> list[str]:
    """The command of every tool call of a trace, else its arguments as text."""
    return [
        _find_command(entry) or _describe_arguments(entry)
        for entry in entries
        if entry.role == "tool_call"
    ]


def _describe_arguments(entry: Entry) -> str:
    try:
        arguments = json.dumps(entry.arguments or {}, sort_keys=True)
    except (ValueError, RecursionError):
        # Too deep to serialise; it then equals any other such call.
        arguments = ""
    return f"{entry.tool_name or ''} {arguments}"


def _read_call(entry: Entry, result: Entry | None) -> Call:
    tool, arguments = entry.tool_name or "", entry.arguments or {}
    command = _find_command(entry)
    cwd = next((text for key in _DIRECTORIES if (text := _text(arguments, key))), None)
    reason = _find_reason(tool, command, arguments)
    if reason is None and "\0" in f"{command}{cwd}":
        reason = "contains a NUL character, which no program can receive"
    if reason is None and cwd is not None and not cwd.startswith("/"):
        reason = f"ran in {cwd!r}, a relative path whose base is not recorded"
    if reason is not None:
        return Unreplayable(step=entry.step, tool=tool, reason=reason)
    return ShellCommand(
        step=entry.step,
        tool=tool,
        command=command,
        cwd=cwd,
        timeout_sec=_find_timeout(tool, arguments) or _find_patience(result),
        observation=None if result is None else _observe(result),
    )


def _find_reason(tool: str, command: str, arguments: Object) -> str | None:
    # Replaying an unknown tool as a command would run something the agent never ran.
    if tool.lower() not in SHELLS:
        return "is not known to run shell commands"
    if "keystrokes" in arguments:
        return "sent keystrokes to a terminal, not a command"
    for key, reason in _NOT_ALONE.items():
        if arguments.get(key) in (True, "true"):
            return reason
    if not command.strip():
        return "has no command in its arguments"
    return "has a command with a redacted secret" if _REDACTED.search(command) else None


def _find_command(entry: Entry) -> str:
    arguments = entry.arguments or {}
    for key in _COMMANDS:
        match arguments.get(key):
            case str(text):
                return text
            case list(words) if words and all(isinstance(word, str) for word in words):
                return shlex.join(words)
    return "" if "keystrokes" in arguments else entry.command or ""


def _find_timeout(tool: str, arguments: Object) -> int | None:
    units = {**_SECONDS, "timeout": 1000} if tool in _MILLISECONDS else _SECONDS
    for key, unit in units.items():
        value = arguments.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9:
            # Rounded up: a limit cut short would time out commands that finished.
            return max(1, -int(-value // unit))
    return None


def _find_patience(result: Entry | None) -> int | None:
    """The limit of a command that timed out, if only its duration is recorded."""
    if result is None or result.exit_code != TIMED_OUT or result.duration_ms is None:
        return None
    return max(1, round(result.duration_ms / 1000))


def _text(arguments: Object, key: str) -> str | None:
    value = arguments.get(key)
    return value if isinstance(value, str) and value else None


def _observe(result: Entry) -> Observation:
    if result.stdout is None and result.stderr is None and result.output_summary is not None:
        return Observation(None, result.exit_code, result.output_summary)
    printed = (result.stdout or "") + (result.stderr or "")
    n_cut = _carried_with(result).get(CUT)
    if isinstance(n_cut, int):
        beginning, note, ending = printed.partition(render_cut(n_cut))
        if note:
            return Observation(None, result.exit_code, beginning, ending)
    return Observation(printed, result.exit_code)


LEAST_PARTS = 3
LEAST_CHARACTERS = 80
CLOSE = 0.8
"""The share from which commands count as close to a script."""
_SEQUENCE_COMMANDS = 3
_SEQUENCE_CHARACTERS = 200

_DROPPED = re.compile(r"""[\s'"`\\]+""")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
_JOINTS = re.compile(r";|&&|\|\|")
_OPTIONS = re.compile(r"set\s+[-+][a-zA-Z]+(\s+[a-z]+)?$")


class Likeness(msgspec.Struct, frozen=True):
    """How much of a script is repeated."""

    share: float
    """Of the script's characters, 0 to 1."""
    parts: int
    """Different parts of the script that are repeated."""
    of: int
    """Different parts of the script."""

    @property
    def is_close(self) -> bool:
        """Whether it is close enough for a note."""
        return self.share >= CLOSE

    def __str__(self) -> str:
        return f"{self.parts} of {self.of} parts, {render_percent(self.share)} of the text"


def find_likeness(commands: Iterable[str], script: str) -> Likeness | None:
    """How much of a script is repeated in commands; None for a script that is too short."""
    wanted = set(_parts_of(script))
    n_characters = sum(map(len, wanted))
    # Short scripts are alike by chance: `make` and `make test` prove nothing.
    if len(wanted) < LEAST_PARTS or n_characters < LEAST_CHARACTERS:
        return None
    given = {part for command in commands for part in _parts_of(command)}
    found = wanted & given
    return Likeness(sum(map(len, found)) / n_characters, len(found), len(wanted))


def is_telling(commands: Sequence[str]) -> bool:
    """Whether a sequence is so long that two attempts would hardly share it by chance."""
    n_characters = sum(len(_DROPPED.sub("", command)) for command in commands)
    least = LEAST_CHARACTERS if len(commands) >= _SEQUENCE_COMMANDS else _SEQUENCE_CHARACTERS
    return n_characters >= least


def _parts_of(text: str) -> Iterator[str]:
    for line in text.replace("\\\n", " ").split("\n"):
        for part in _JOINTS.split(_COMMENT.sub("", line)):
            plain = part.strip()
            if plain and not _OPTIONS.match(plain):
                yield _DROPPED.sub("", plain)
