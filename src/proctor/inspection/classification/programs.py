"""What programs and tools are for, by their names: tables, and nothing else."""

import re
from typing import Final

CHECKS: Final = 1
"""Tests, linters, type checkers, comparisons."""
WRITES: Final = 2
"""Changes a file."""
LOOKS: Final = 4
"""Shows what is there and changes nothing."""
RUNS: Final = 8
"""Anything else."""
THINKS: Final = 16
"""A tool that only takes a thought or a plan down."""
PROBES: Final = 32
"""Asks a service on this machine."""
ENDS: Final = 64
"""A tool that hands the work in."""
WAITS: Final = 128
"""Lets time pass."""


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
"""A program that is told one of these first checks something."""
BEFORE: Final = _words(
    "sudo time /usr/bin/time nohup env exec command nice xargs stdbuf then do else ! clear ( {"
)
"""Words that stand before a program."""
SILENT: Final = _words(
    "cd set export echo printf true source . pushd popd : fi done if for while case esac } ) EOF"
)
"""Programs that say nothing about what a command is for."""
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
"""What a program does by one of the first words after it."""
ASKERS: Final = _words("curl wget http nc ping redis-cli")
DATABASES: Final = _words("sqlite3 psql mysql duckdb mariadb")
HERE: Final = re.compile(r"localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]")

# Tools that are no shells

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
"""Code that writes a file, with the file's name where it stands there."""
CODE_CHECKS: Final = re.compile(r"\bassert\b|assert_|allclose|isclose|unittest")
QUERY_LOOKS: Final = re.compile(
    r"(?:^|[\s\"'(;])(?:select|explain|pragma|show|describe|with|\.schema|\.tables|\\d)\b",
    re.IGNORECASE,
)
QUERY_WRITES: Final = re.compile(
    r"\b(?:insert|update|delete|create|drop|alter|replace|vacuum|truncate)\b", re.IGNORECASE
)
