"""What a tool call does, as far as its name and its command tell: looks, writes, checks, runs.

A command is taken apart roughly: at line ends, semicolons, ampersands and bars, without regard to
quotes; here-documents are left out. What is not known is taken for running something. Files are
told apart by their last names alone, because traces seldom say in which directory they are.
Nothing is run, and no file is looked for.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from proctor.trajectory.commands import SHELLS, WITHOUT_EFFECT
from proctor.trajectory.entry import Object

CHECKS: Final = 1
"""Tests, linters, type checkers, comparisons."""
WRITES: Final = 2
LOOKS: Final = 4
"""Shows what is there and changes nothing."""
RUNS: Final = 8
"""Anything else."""
THINKS: Final = 16
"""A tool that only takes a thought or a plan down."""

MOST_COMMAND: Final = 4000
"""Characters of a command that are looked at."""
_MOST_REMEMBERED: Final = 4096


class Action(NamedTuple):
    """What a tool call does."""

    does: int
    """CHECKS, WRITES, LOOKS, RUNS or THINKS, or several of them."""
    read: frozenset[str]
    """Last names of files that it shows."""
    written: frozenset[str]
    """Last names of files that it writes."""


_NONE: Final[frozenset[str]] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CHECKERS = _words(
    "pytest py.test tox nox unittest mypy pyright ruff flake8 pylint black eslint tsc shellcheck"
    " diff cmp colordiff jest vitest mocha ctest phpunit rspec clippy sha256sum md5sum sha1sum"
    " cksum test [ [[ visudo xmllint yamllint jsonlint htmlhint valgrind comm"
)
_LOOKERS = _words(
    "cat head tail less more nl bat grep egrep fgrep rg ag ack wc ls ll dir stat file xxd od"
    " hexdump strings jq yq find fd tree pwd which whereis type whoami id uname hostname env"
    " printenv ps top df du free lsof ss netstat ip ifconfig man help history readelf objdump nm"
    " ldd column sort uniq cut awk locate readlink realpath date lscpu nproc lsblk mount"
)
_WRITERS = _words(
    "tee cp mv mkdir touch rm rmdir ln chmod chown install patch truncate dd unzip tar gzip gunzip"
    " rsync"
)
_BEFORE = _words("sudo time nohup env exec command nice xargs stdbuf then do else !")
"""Words that stand before a program."""
_SILENT = _words("cd set export echo printf true source . sleep pushd popd : fi done if")
"""Programs that say nothing about what a command is for."""
_INTERPRETERS = frozenset({"bash", "sh", "node", "ruby", "perl"})
_HELP = frozenset({"--help", "-h", "--version", "-V"})
_CHECKING_MODULES = _words(
    "pytest unittest mypy pylint flake8 ruff py_compile compileall doctest json.tool tox"
)
_CHECKING_WORDS: Final = {
    "npm": frozenset({"test", "t", "lint", "check", "typecheck"}),
    "pnpm": frozenset({"test", "lint", "check"}),
    "yarn": frozenset({"test", "lint", "check"}),
    "npx": frozenset({"jest", "tsc", "eslint", "vitest", "mocha"}),
    "make": frozenset({"test", "tests", "check", "lint", "verify"}),
    "cargo": frozenset({"test", "check", "clippy"}),
    "go": frozenset({"test", "vet"}),
    "mvn": frozenset({"test", "verify"}),
    "gradle": frozenset({"test", "check"}),
    "nginx": frozenset({"-t"}),
    "bash": frozenset({"-n"}),
    "node": frozenset({"--check", "--test"}),
    "php": frozenset({"-l"}),
    "terraform": frozenset({"validate"}),
    "git": frozenset({"diff", "fsck", "verify-pack"}),
    "uv": frozenset({"pytest", "mypy", "ruff"}),
    "poetry": frozenset({"pytest", "mypy", "ruff"}),
}
_LOOKING_WORDS: Final = {
    "git": frozenset({"log", "status", "show", "branch", "reflog", "blame", "remote", "ls-files"}),
    "pip": frozenset({"list", "show", "freeze"}),
    "pip3": frozenset({"list", "show", "freeze"}),
    "npm": frozenset({"ls", "list", "view"}),
    "docker": frozenset({"ps", "images", "logs", "inspect"}),
    "systemctl": frozenset({"status", "list-units"}),
    "dpkg": frozenset({"-l", "-s", "-L"}),
    "apt": frozenset({"list", "show", "search"}),
}
_CHECKING_SCRIPT = re.compile(
    r"(?:^|/)(?:run[_-]?)?(?:tests?|check|verify|validate)(?:[_.-][\w.-]*|s?)$|_test\.\w+$|_tests?\.py$"
)
_PARTS = re.compile(r"\n|;|&&?|\|\|?")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?(?:\n\s*\2(?=\s|$)|\Z)", re.DOTALL)
_REDIRECTED = re.compile(r"(?<![\d<=>&-])(?:&|1)?>>?\s*(?!&|/dev/)['\"]?([^\s'\"|;&<>()]+)")
_AROUND = "'\"()`"
_OF_PROGRAM: Final = {
    **dict.fromkeys(_WRITERS, WRITES),
    **dict.fromkeys(_LOOKERS, LOOKS),
    **dict.fromkeys(_CHECKERS, CHECKS),
}
_OF_WORD: Final = {
    program: {
        **dict.fromkeys(_LOOKING_WORDS.get(program, ()), LOOKS),
        **dict.fromkeys(_CHECKING_WORDS.get(program, ()), CHECKS),
    }
    for program in {*_CHECKING_WORDS, *_LOOKING_WORDS}
}

_remembered: dict[str, Action] = {}


def read_command(command: str) -> Action:
    """What a shell command does."""
    known = _remembered.get(command)
    if known is None:
        known = _read_command(command[:MOST_COMMAND])
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        if len(command) <= MOST_COMMAND:
            _remembered[command] = known
    return known


def _read_command(command: str) -> Action:
    does, read, written = 0, [], []
    if "<<" in command:
        command = _HERE.sub(r"\3", command)
    if ">" in command:
        written = [_last_name(path) for path in _REDIRECTED.findall(command)]
        does = WRITES if written else 0
    for part in _PARTS.split(command):
        words = _find_words(part)
        if words:
            one = _read_words(words, part)
            does |= one
            if one & WRITES:
                written += [_last_name(word) for word in words[1:] if word[0] not in "-<>"]
            elif one & (LOOKS | CHECKS):
                read += [_last_name(word) for word in words[1:] if word[0] not in "-<>$"]
    return Action(
        does or RUNS,
        frozenset(read) if read else _NONE,
        frozenset(written) if written else _NONE,
    )


def _find_words(part: str) -> list[str]:
    """The words of a simple command from its program on; none for one that says nothing."""
    words = part.split()
    at = 0
    for word in words:
        if word in _BEFORE or "=" in word:
            at += 1
        elif word == "timeout":
            at += 2
        else:
            return [] if word in _SILENT else words[at:]
    return []


def _read_words(words: Sequence[str], part: str) -> int:
    program = _last_name(words[0])
    known = _OF_PROGRAM.get(program)
    if known is not None:
        return known
    if program in _OF_WORD:
        for word in words[1:5]:
            if (known := _OF_WORD[program].get(word)) is not None:
                return known
    if program == "sed":
        return WRITES if any(word.startswith("-i") for word in words) else LOOKS
    if _is_checking(program, words):
        return CHECKS
    if words[-1] in _HELP:
        return LOOKS
    return CHECKS if "assert" in part else RUNS


def _is_checking(program: str, words: Sequence[str]) -> bool:
    """Whether a script that is run is named as one that tests."""
    if program in _INTERPRETERS or program.startswith("python"):
        if len(words) > 2 and words[1] == "-m":
            return words[2] in _CHECKING_MODULES
        program = next((word for word in words[1:] if word[0] != "-"), "")
    if "test" not in program and "check" not in program and "v" not in program:
        return False
    return _CHECKING_SCRIPT.search(program) is not None


def _last_name(path: str) -> str:
    if "/" in path:
        path = path.rstrip("/").rpartition("/")[2]
    return path.strip(_AROUND)


# Tools that are no shells

_READING_TOOL = re.compile(
    r"read|view|cat|open|list|ls|glob|grep|search|find|fetch|browse|get|look"
)
_WRITING_TOOL = re.compile(r"writ|edit|creat|replac|insert|patch|updat|delet|renam|mov|save|append")
_CHECKING_TOOL = re.compile(r"test|lint|check|verif|valid|diff|compar|diagnos|assert")
_PLANNING_TOOLS = WITHOUT_EFFECT - {"finish", "mark_task_complete"} | {"plan", "todo", "scratchpad"}
_PATHS = ("path", "file_path", "filename", "file", "target_file", "filepath", "notebook_path")
_EDITING = frozenset({"create", "str_replace", "insert", "undo_edit", "write"})
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update) File: (.+)$|^\+\+\+ (?:b/)?(\S+)", re.MULTILINE)


def read_call(tool: str | None, command: str | None, arguments: Object | None) -> Action:
    """What a tool call does."""
    name = (tool or "").lower()
    given = _find_command(command, arguments)
    if name in SHELLS or (given and not _WRITING_TOOL.search(name) and "editor" not in name):
        return read_command(given) if given else _RUNNING
    if name in _PLANNING_TOOLS:
        return _THINKING
    return _read_tool(name, given, arguments or {})


_RUNNING: Final = Action(RUNS, _NONE, _NONE)
_THINKING: Final = Action(THINKS, _NONE, _NONE)


def _find_command(command: str | None, arguments: Object | None) -> str:
    if command or not arguments:
        return command or ""
    given = arguments.get("command") or arguments.get("cmd") or arguments.get("keystrokes")
    if isinstance(given, list):
        return " ".join(word for word in given if isinstance(word, str))
    return given if isinstance(given, str) else ""


def _read_tool(name: str, given: str, arguments: Object) -> Action:
    paths = frozenset(_find_paths(arguments))
    if given == "view" or ("editor" in name and given and given not in _EDITING):
        return Action(LOOKS, paths, _NONE)
    if _CHECKING_TOOL.search(name):
        return Action(CHECKS, paths, _NONE)
    if _WRITING_TOOL.search(name) or given in _EDITING:
        return Action(WRITES, _NONE, paths | frozenset(_find_patched(given, arguments)))
    if _READING_TOOL.search(name):
        return Action(LOOKS, paths, _NONE)
    return Action(RUNS, paths, _NONE)


def _find_paths(arguments: Object) -> Iterator[str]:
    for key in _PATHS:
        path = arguments.get(key)
        if isinstance(path, str) and path:
            yield _last_name(path[:MOST_COMMAND])


def _find_patched(given: str, arguments: Object) -> Iterator[str]:
    patch = arguments.get("patch") or arguments.get("input") or given
    if isinstance(patch, str):
        for added, changed in _PATCHED.findall(patch[:MOST_COMMAND]):
            yield _last_name(added or changed)
