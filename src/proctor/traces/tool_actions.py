"""What a tool call does, judged by its name and command: looks, writes, checks, runs.

A command is split roughly: at line ends, semicolons, double ampersands and bars, ignoring quotes;
here-documents are left out. An unknown program counts as running something. Files are identified by
their last name only, because traces rarely contain the directory. Does not run anything or access
files.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from proctor.traces.commands import SHELLS
from proctor.traces.entry import Object

CHECKS: Final = 1
"""Tests, linters, type checkers, comparisons."""
WRITES: Final = 2
"""Changes a file."""
LOOKS: Final = 4
"""Shows something and changes nothing."""
RUNS: Final = 8
"""Anything else."""
THINKS: Final = 16
"""A tool that only records a thought or a plan."""
PROBES: Final = 32
"""Queries a service on this machine."""
ENDS: Final = 64
"""A tool that submits the work."""
WAITS: Final = 128
"""Waits."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CHECKERS = _words(
    "pytest py.test tox nox unittest mypy pyright ruff flake8 pylint eslint tsc shellcheck diff cmp"
    " colordiff jest vitest mocha ctest phpunit rspec test [ [[ visudo xmllint yamllint jsonlint"
    " valgrind comm pdfinfo ffprobe"
)
_LOOKERS = _words(
    "cat head tail less more nl bat grep egrep fgrep zgrep rg ag ack wc ls ll dir stat file xxd od"
    " hexdump strings jq yq find fd tree pwd which whereis type whoami id uname hostname printenv"
    " ps top df du free lsof ss netstat ip ifconfig man help history readelf objdump nm ldd column"
    " sort uniq cut awk locate readlink realpath date lscpu nproc lsblk tr paste fuser sha256sum"
    " md5sum sha1sum cksum crontab journalctl dmesg sed nvidia-smi identify exiftool pdftotext zcat"
    " bzcat xzcat getent groups lsmod blkid mount dig host nslookup pstree pgrep"
)
_WRITERS = _words("tee cp mv touch ln patch truncate dd install")
CHECKING_ORDERS: Final = _words("test tests check verify validate lint")
"""As the first argument, these make a program check something."""
BEFORE: Final = _words(
    "sudo time /usr/bin/time nohup env exec command nice xargs stdbuf then do else ! clear ( {"
)
"""Words that may precede a program."""
SILENT: Final = _words(
    "cd set export echo printf true source . pushd popd : fi done if for while case esac } ) EOF"
)
"""Programs that do not show what a command is for."""
INTERPRETERS: Final = _words("bash sh node ruby perl python python3 uv")
HELP: Final = _words("--help -h --version -V")
CHECKING_MODULES: Final = _words(
    "pytest unittest mypy pylint flake8 ruff py_compile compileall doctest json.tool tox"
)
CHECKING_SCRIPT: Final = re.compile(
    r"(?:^|/)(?:run[_-]?)?(?:tests?|check|verify|validate)(?:[_.-][\w.-]*|s?)$|_tests?\.\w+$"
)
_CHECKING_WORDS = {
    "npm": "test t lint check typecheck",
    "pnpm": "test lint check",
    "yarn": "test lint check",
    "npx": "jest tsc eslint vitest mocha",
    "make": "test tests check lint verify",
    "cargo": "test check clippy",
    "go": "test vet",
    "mvn": "test verify",
    "gradle": "test check",
    "dotnet": "test",
    "nginx": "-t",
    "bash": "-n",
    "node": "--check --test",
    "php": "-l",
    "terraform": "validate",
    "git": "diff verify-pack",
    "uv": "pytest mypy ruff",
    "poetry": "pytest mypy ruff",
    "conda": "pytest",
    "docker": "pytest",
    "hatch": "test pytest",
    "bazel": "test",
    "mix": "test",
    "rake": "test",
    "bundle": "rspec",
    "black": "--check",
}
_LOOKING_WORDS = {
    "git": "log status show branch reflog blame remote ls-files fsck grep cat-file",
    "pip": "list show freeze",
    "pip3": "list show freeze",
    "npm": "ls list view",
    "docker": "ps images logs inspect",
    "kubectl": "get describe logs",
    "systemctl": "status list-units",
    "dpkg": "-l -s -L",
    "apt": "list show search",
    "tar": "-tf tf -tzf tzf -tvf",
    "conda": "list",
}
_WRITING_WORDS = {
    "git": "commit cherry-pick merge rebase reset checkout restore revert apply am filter-branch"
    " update-ref stash rm mv",
    "sed": "-i -i.bak -Ei -i.orig -ri -ni",
    "perl": "-i -pi -i.bak",
    "crontab": "-",
}
OF_PROGRAM: Final = {
    **dict.fromkeys(_WRITERS, WRITES),
    **dict.fromkeys(_LOOKERS, LOOKS),
    **dict.fromkeys(_CHECKERS, CHECKS),
    "sleep": WAITS,
    "wait": WAITS,
}
OF_WORD: Final = {
    program: {
        **dict.fromkeys(_LOOKING_WORDS.get(program, "").split(), LOOKS),
        **dict.fromkeys(_CHECKING_WORDS.get(program, "").split(), CHECKS),
        **dict.fromkeys(_WRITING_WORDS.get(program, "").split(), WRITES),
    }
    for program in {*_CHECKING_WORDS, *_LOOKING_WORDS, *_WRITING_WORDS}
}
"""What a program does, by one of the first words after it."""
ASKERS: Final = _words("curl wget http nc ping redis-cli")
DATABASES: Final = _words("sqlite3 psql mysql duckdb mariadb")
HERE: Final = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]")

# Tools other than shells

READING_TOOL: Final = re.compile(
    r"read|view|open|list|glob|grep|search|find|fetch|brows|get|look|show|ls$"
)
WRITING_TOOL: Final = re.compile(
    r"writ|edit|creat|replac|insert|patch|updat|delet|renam|mov|save|append"
)
CHECKING_TOOL: Final = re.compile(r"test|lint|check|verif|valid|diff|compar|diagnos|assert")
ENDING_TOOL: Final = re.compile(r"submit|finish|complete|final|answer|done|give_up")
PLANNING_TOOLS: Final = _words("think update_plan todowrite todoread plan todo scratchpad")
CODE_WRITES: Final = re.compile(
    r"(?:\.to_(?:csv|json|parquet|excel)|\.save\w*|savefig|\bsave)\(['\"]?([^'\")\n]*)"
    r"|open\(['\"]([^'\"\n]*)['\"], *['\"][wax]b?['\"]|\.write(?:_text|_bytes)?\(|\.dump\("
)
"""Code that writes a file, with the file's name if it is given."""
CODE_CHECKS: Final = re.compile(r"\bassert\b|assert_|allclose|isclose|unittest")
QUERY_LOOKS: Final = re.compile(
    r"(?:^|[\s\"'(;])(?:select|explain|pragma|show|describe|with|\.schema|\.tables|\\d)\b",
    re.IGNORECASE,
)
QUERY_WRITES: Final = re.compile(
    r"\b(?:insert|update|delete|create|drop|alter|replace|vacuum|truncate)\b", re.IGNORECASE
)


MOST_COMMAND: Final = 1500
"""Most characters of a command that are read."""


class Action(NamedTuple):
    """What a tool call does."""

    does: int
    """CHECKS, WRITES, LOOKS, RUNS, THINKS, PROBES or ENDS, or several of them."""
    last: int
    """The last of its actions."""
    read: frozenset[str] = frozenset()
    """Last names of files that it shows or compares."""
    written: frozenset[str] = frozenset()
    """Last names of files that it writes."""
    ran: frozenset[str] = frozenset()
    """The commands it runs, verbatim."""


_NONE: Final[frozenset[str]] = frozenset()
_WRAPPED = re.compile(r"\s*(?:/usr)?(?:/bin/)?(?:ba|z|da)?sh -l?c (['\"]?)(.*)\1\s*\Z", re.DOTALL)
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?(?:\n\s*\2(?=\s|$)|\Z)", re.DOTALL)
_REDIRECTED = re.compile(r">(?<![2-9<=>-]>)>?\s*(?!&|/dev/)['\"]?([^\s'\"|;&<>()]+)")
_AROUND = "'\"()`,"
_NAMES = re.compile(r"[\w-]+(?:\.\w+)*")
# Options after which the code to run is in the command itself.
_TRIES = frozenset({"-c", "-", "-e"})
_MOST_OF_A_RUN = 200
# Words of a simple command that are read; the last one contains the rest.
_MOST_WORDS = 16
_SEPARATORS = "-<>$&"


def read_command(command: str) -> Action:
    """What a shell command does."""
    return _read_command(command if len(command) <= MOST_COMMAND else command[:MOST_COMMAND])


@lru_cache(maxsize=4096)
def _read_command(command: str) -> Action:
    # `bash -c "…"`, as some harnesses wrap every command, is read as what it wraps.
    if "sh -" in command and (wrapped := _WRAPPED.match(command)) is not None:
        command = wrapped[2]
    taken, whole = _Taken(), command
    if "<<" in command:
        command = _HERE.sub(r"\3", command)
    if ">" in command:
        taken.written = [name for path in _REDIRECTED.findall(command) for name in name_file(path)]
        taken.does = taken.last = WRITES if taken.written else 0
    # One regular expression would be shorter, but takes ten times as long.
    for pipeline in command.replace("&&", "\n").replace("||", "\n").replace(";", "\n").split("\n"):
        if "|" in pipeline:
            for at, stage in enumerate(pipeline.split("|")):
                taken.take(stage, is_first=not at)
        else:
            taken.take(pipeline, is_first=True)
    # `python -c …` may import what an earlier turn wrote, so every name in it counts as read.
    if taken.tries:
        taken.read += _NAMES.findall(whole)
    return taken.whole()


class _Taken:
    """What was read of a command so far."""

    __slots__ = ("does", "last", "ran", "read", "tries", "written")

    def __init__(self) -> None:
        self.does = self.last = 0
        self.tries = False
        """Whether it runs code that is in the command itself."""
        self.read: list[str] = []
        self.written: list[str] = []
        self.ran: list[str] = []

    def take(self, part: str, *, is_first: bool) -> None:
        """Add the next simple command; one that only filters a pipe is ignored."""
        words = _find_words(part)
        if not words:
            return
        does = _read_words(words, part)
        # `… | grep x` filters the output of the first command, which decides.
        if does & LOOKS and not is_first:
            return
        self.does |= does
        self.last = does
        if does & WRITES:
            self.written += name_file(words[-1])
            if words[0] == "git":
                self.written.append(words[0])
        elif does & (LOOKS | CHECKS):
            # Includes the program: what git shows is what git wrote.
            self.read += [_last_name(word) for word in words if word[0] not in _SEPARATORS]
        elif does & RUNS and not _TRIES.isdisjoint(words[1:3]):
            self.tries = True
        if does & (RUNS | CHECKS):
            self.ran.append(part.strip()[:_MOST_OF_A_RUN])

    def whole(self) -> Action:
        """The resulting action."""
        return Action(
            self.does or RUNS,
            self.last or RUNS,
            frozenset(self.read) if self.read else _NONE,
            frozenset(self.written) if self.written else _NONE,
            frozenset(self.ran) if self.ran else _NONE,
        )


def _find_words(part: str) -> list[str]:
    """The words of a simple command from its program on; empty if it is not meaningful."""
    words = part.split(None, _MOST_WORDS)
    at = 0
    while at < len(words):
        word = words[at]
        if word in BEFORE or ("=" in word and word[0] not in "-/."):
            at += 1
        elif word == "timeout":
            at += 2
        else:
            return [] if word in SILENT or word[0] in "#<>&" else words[at:]
    return []


def _read_words(words: Sequence[str], part: str) -> int:
    program = _last_name(words[0])
    by_word = OF_WORD.get(program)
    if by_word is not None:
        for word in words[1:5]:
            if (known := by_word.get(word)) is not None:
                return known
    if (known := OF_PROGRAM.get(program)) is not None:
        return known
    if program in ASKERS:
        return PROBES if HERE.search(part) else RUNS
    if program in DATABASES:
        return _read_query(part)
    if words[-1] in HELP:
        return LOOKS
    return CHECKS if _is_checking(program, words) or "assert" in part else RUNS


def _read_query(query: str) -> int:
    """What a database query does; an unknown one runs something."""
    if QUERY_WRITES.search(query):
        return WRITES
    return LOOKS if QUERY_LOOKS.search(query) else RUNS


def _is_checking(program: str, words: Sequence[str]) -> bool:
    """Whether a program is asked to check, or runs a script with the name of a test."""
    if len(words) > 1 and words[1] in CHECKING_ORDERS:
        return True
    if program in INTERPRETERS:
        if len(words) > 2 and words[1] == "-m":
            return words[2] in CHECKING_MODULES
        program = next((word for word in words[1:] if word[0] != "-"), "")
    if "t" not in program and "check" not in program and "verify" not in program:
        return False
    return CHECKING_SCRIPT.search(program) is not None


def name_file(path: str) -> list[str]:
    """The names by which a written file is recognised later: its own, and its import name."""
    name = _last_name(path)
    names = [name, name.removesuffix(".py")] if name.endswith(".py") else [name]
    folder = _last_name(path.rpartition("/")[0]) if "/" in path else ""
    return [*names, folder] if folder in _OUTPUTS else names


# Directories that contain only results.
_OUTPUTS = frozenset({"out", "output", "outputs", "build", "dist", "result", "results", "backup"})


def _last_name(path: str) -> str:
    if "/" in path:
        path = path.rstrip("/").rpartition("/")[2]
    return path.strip(_AROUND)


# What the calls of other tools do

_COMMANDS = ("command", "cmd", "keystrokes", "keys")
_PATHS = ("path", "file_path", "filename", "file", "target_file", "filepath", "notebook_path")
_EDITING = frozenset({"create", "str_replace", "insert", "undo_edit", "write"})
_PATCHED = re.compile(r"^\*\*\* (?:Add|Update) File: (.+)$|^\+\+\+ (?:b/)?(\S+)", re.MULTILINE)


def read_call(tool: str | None, command: str | None, arguments: Object | None) -> Action:
    """What a tool call does."""
    given = command or (_find_command(arguments) if arguments else "")
    if tool in SHELLS:
        return read_command(given)
    name = (tool or "").lower()
    if given and not WRITING_TOOL.search(name) and "editor" not in name:
        return read_command(given.replace(" C-m", "\n") if "keys" in name else given)
    return _read_tool(name, given, arguments or {})


def _find_command(arguments: Object) -> str:
    given = next((value for key in _COMMANDS if (value := arguments.get(key))), "")
    if isinstance(given, list):
        return " ".join(word for word in given if isinstance(word, str))
    return given if isinstance(given, str) else ""


def _read_tool(name: str, given: str, arguments: Object) -> Action:
    paths = _name_all(_find_paths(arguments))
    if (query := _text(arguments, "query")) and "sql" in name:
        does = _read_query(query[:MOST_COMMAND])
    elif code := _text(arguments, "code") or _text(arguments, "script"):
        return _read_code(code[:MOST_COMMAND])
    elif name in PLANNING_TOOLS:
        does = THINKS
    elif given == "view" or ("editor" in name and given not in _EDITING):
        does = LOOKS
    else:
        does = _read_name(name, is_editing=given in _EDITING)
    if does == WRITES:
        return Action(does, does, written=paths | _name_all(_find_patched(given, arguments)))
    return Action(does, does, read=paths)


def _read_name(name: str, *, is_editing: bool) -> int:
    if is_editing or WRITING_TOOL.search(name):
        return WRITES
    if ENDING_TOOL.search(name):
        return ENDS
    if CHECKING_TOOL.search(name):
        return CHECKS
    return LOOKS if READING_TOOL.search(name) else RUNS


def _read_code(code: str) -> Action:
    """What the code that a tool runs does."""
    files = [one or other for one, other in CODE_WRITES.findall(code)]
    does = CHECKS if CODE_CHECKS.search(code) else WRITES if files else RUNS
    return Action(does, does, written=_name_all(files))


def _text(arguments: Object, key: str) -> str:
    value = arguments.get(key)
    return value if isinstance(value, str) else ""


def _find_paths(arguments: Object) -> Iterator[str]:
    for key in _PATHS:
        if path := _text(arguments, key):
            yield path[:MOST_COMMAND]


def _find_patched(given: str, arguments: Object) -> Iterator[str]:
    patch = _text(arguments, "patch") or _text(arguments, "input") or given
    for added, changed in _PATCHED.findall(patch[:MOST_COMMAND]):
        yield added or changed


def _name_all(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(name for path in paths for name in name_file(path))
