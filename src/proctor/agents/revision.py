"""What pins an agent: the digest of its files, or what its version command prints.

The digest covers what is put into the environment and nothing else: version control and caches
of tools are neither hashed nor put there. Nothing here reads the inside of an environment.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from proctor.digest import sha256_file, sha256_hex
from proctor.errors import AgentError

IGNORED = frozenset(
    {".git", ".hg", ".svn", ".jj"}
    | {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".DS_Store"}
)
"""Names, at any depth, that are no part of an agent."""

_SECONDS = 60
_LONGEST = 200


def tree_digest(directory: Path) -> str:
    """`sha256:…` over the relative path, kind, mode and content of everything in a directory.

    Of the mode only whether a file may be executed counts, as in git: the rest depends on who
    checked it out.

    Raises:
        AgentError: it is no directory, cannot be read, or holds a device, pipe or socket.
    """
    if not directory.is_dir():
        raise AgentError(f"{directory}: is no directory; expected the agent's files")
    try:
        lines = sorted(_describe(path, directory) for path in _walk(directory))
    except OSError as error:
        raise AgentError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return f"sha256:{sha256_hex(b''.join(lines))}"


def file_digest(path: Path) -> str:
    """`sha256:…` of a file's bytes.

    Raises:
        AgentError: it cannot be read, or is no plain file and may have no end.
    """
    if path.exists() and not path.is_file():
        raise AgentError(f"{path}: no plain file; expected one")
    try:
        return f"sha256:{sha256_file(path)}"
    except OSError as error:
        raise AgentError(f"{path}: cannot be read: {error.strerror}") from error


def _walk(directory: Path) -> Iterator[Path]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name in IGNORED:
                continue
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path))


def _describe(path: Path, root: Path) -> bytes:
    name = os.fsencode(path.relative_to(root))
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return b"link\0%s\0%s\n" % (name, os.fsencode(path.readlink()))
    if stat.S_ISDIR(mode):
        return b"directory\0%s\n" % name
    if not stat.S_ISREG(mode):
        raise AgentError(f"{path}: a device, pipe or socket; expected files, links, directories")
    kind = b"program" if mode & stat.S_IXUSR else b"file"
    return b"%s\0%s\0%s\n" % (kind, name, sha256_file(path).encode())


@contextlib.contextmanager
def staged(directory: Path) -> Iterator[Path]:
    """The directory, or a copy of it without what the digest leaves out, for as long as it lasts.

    Raises:
        AgentError: it cannot be copied.
    """
    if not any(
        IGNORED.intersection([*folders, *files]) for _, folders, files in os.walk(directory)
    ):
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="proctor-agent-") as name:
        copy = Path(name, "tree")
        try:
            shutil.copytree(directory, copy, symlinks=True, ignore=_find_ignored)
        except (OSError, shutil.Error) as error:
            raise AgentError(f"{directory}: cannot be copied: {error}") from error
        yield copy


def _find_ignored(_: str, names: list[str]) -> set[str]:
    return set(IGNORED.intersection(names))


def run_version_command(command: str) -> str:
    """The first line that a shell command prints on the host.

    Raises:
        AgentError: it failed, took more than a minute, or printed nothing.
    """
    shown = f"agent version command {command!r}"
    try:
        done = subprocess.run(
            ["sh", "-c", command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AgentError(f"{shown}: not done after {_SECONDS} s; expected a quick one") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-_LONGEST:]
        raise AgentError(f"{shown}: exit code {done.returncode}: {said or 'no output'}")
    return first_line(done.stdout.decode(errors="replace"), shown)


def first_line(output: str, whose: str) -> str:
    """The first line of a version command's output.

    Raises:
        AgentError: it is empty or too long for a version.
    """
    line = output.strip().partition("\n")[0].strip()
    if not line or len(line) > _LONGEST:
        found = f"its first line has {len(line)} characters" if line else "it printed nothing"
        raise AgentError(f"{whose}: {found}; expected a version of up to {_LONGEST} on one line")
    return line
