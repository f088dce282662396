"""proctor under a watcher of system calls: every path that it makes, changes or opens for writing.

    watch(place, commands)    runs them, one after the other, in one child under strace

The child has a home, a cache and a temporary directory of its own below `place`.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.cli.programs import environment
from tests.ledger.disk import decode, whole_calls

_OPENING = {"open", "openat", "openat2", "creat"}
_NAMING = {
    *("mkdir", "mkdirat", "mknod", "mknodat", "rename", "renameat", "renameat2", "link", "linkat"),
    *("symlink", "symlinkat", "unlink", "unlinkat", "rmdir", "truncate", "chmod", "fchmodat"),
    *("fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes", "utimensat", "futimesat"),
    *("setxattr", "lsetxattr", "removexattr", "lremovexattr"),
}
_BY_DESCRIPTOR = {"ftruncate", "fallocate", "fchmod", "fchown", "fsetxattr", "fremovexattr"}
_SOURCE_FIRST = {"link", "linkat", "symlink", "symlinkat"}
"""Their first path is not changed."""
_WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_TMPFILE")
_CALL = re.compile(r"\d+ +(\w+)\((.*)\) += (-?\d+)(?:<([^>]*)>)?")
_WORD = re.compile(r'(AT_FDCWD|\d+)<([^>]*)>|"((?:\\x[0-9a-f]{2})*)"')
_HARMLESS = ("/dev/", "/proc/self/")
_MARK = "/watched-command/"
_DRIVER = """
import json, os, sys
from proctor.cli.main import main
codes = []
for number, words in enumerate(json.loads(sys.argv[1])):
    try:
        os.open(f"%s{number}", os.O_RDONLY)
    except OSError:
        pass
    sys.argv = ["proctor", *words]
    try:
        main()
    except SystemExit as left:
        codes.append(left.code)
print(codes, file=sys.stderr)
""".replace("%s", _MARK)


@dataclass(frozen=True)
class Write:
    """Something that was made, changed, or opened for writing."""

    command: str
    call: str
    path: str
    """Without links: where it really is."""


@dataclass(frozen=True)
class Watched:
    """What a child did."""

    codes: list[int]
    """Exit codes, by command."""
    said: str
    """All that it printed."""
    writes: list[Write]

    def outside(self, *allowed: Path) -> list[Write]:
        """What it did anywhere else."""
        roots = [os.path.realpath(each) for each in allowed]
        return [
            each
            for each in self.writes
            if not any(each.path == root or each.path.startswith(f"{root}/") for root in roots)
        ]


def own_places(place: Path) -> tuple[Path, Path]:
    """The cache and the temporary directory of the child."""
    return place / "cache", place / "tmp"


def environment_in(place: Path) -> dict[str, str]:
    """The child's environment."""
    cache, temporary = own_places(place)
    for each in (cache, temporary, place / "home", place / "out"):
        each.mkdir(parents=True, exist_ok=True)
    return environment(
        HOME=str(place / "home"),
        PROCTOR_CACHE=str(cache),
        XDG_CACHE_HOME=str(cache),
        XDG_CONFIG_HOME=str(place / "out" / "config"),
        TMPDIR=str(temporary),
    )


def strace_words(trace: Path) -> list[str]:
    calls = ",".join(f"?{call}" for call in sorted(_OPENING | _NAMING | _BY_DESCRIPTOR))
    words = ["strace", "-f", "--seccomp-bpf", "-qq", "-y", "-xx", "-s", "5000", "-o", str(trace)]
    return [*words, "-e", f"trace={calls}"]


def watch(place: Path, commands: Sequence[Sequence[object]]) -> Watched:
    """Run commands of proctor; see what they write."""
    trace, words = place / "trace", [[str(word) for word in each] for each in commands]
    driver = [sys.executable, "-c", _DRIVER, msgspec.json.encode(words).decode()]
    ran = subprocess.run(
        [*strace_words(trace), *driver],
        env=environment_in(place),
        cwd=place / "out",
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    said, _, codes = ran.stderr.rstrip().rpartition("\n")
    found = list(read_writes(trace, place / "out", [" ".join(each) for each in words]))
    return Watched(msgspec.json.decode(codes), ran.stdout + said, found)


def read_writes(trace: Path, cwd: Path, commands: Sequence[str]) -> Iterator[Write]:
    """The writes in a trace, each with the command that was running."""
    command = commands[0]
    for line in whole_calls(trace.read_text().splitlines()):
        found = _CALL.match(line)
        if found is None:
            continue
        call, arguments, answer, opened = found.groups()
        paths = _paths_in(arguments, str(cwd))
        if paths and paths[0].startswith(_MARK):
            command = commands[int(paths[0].removeprefix(_MARK))]
        if int(answer) < 0:
            continue
        if call in _OPENING:
            # What was opened is named by its descriptor, whatever links led there.
            is_writing = call == "creat" or _WRITING.search(arguments)
            paths = [_text(opened)] if is_writing and opened else []
        changed = paths[1:] if call in _SOURCE_FIRST else paths
        yield from (Write(command, call, path) for path in changed if _is_kept(path))


def _is_kept(path: str) -> bool:
    return not path.startswith(_HARMLESS)


def _paths_in(arguments: str, cwd: str) -> list[str]:
    """Every path of a call; of a call without one, that of its descriptor."""
    folder, paths = cwd, []
    for _, descriptor, text in _WORD.findall(arguments):
        if descriptor:
            folder = _text(descriptor)
        else:
            above, _, name = str(Path(folder, _text(text))).rpartition("/")
            paths.append(f"{os.path.realpath(above)}/{name}")
            folder = cwd
    return paths or ([folder] if folder != cwd else [])


def _text(escaped: str) -> str:
    return os.fsdecode(decode(escaped)).removesuffix(" (deleted)")
