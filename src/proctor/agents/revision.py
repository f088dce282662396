"""Pins an agent by the digest of its files, or by what its version command prints.

The digest covers exactly the files that are copied into the environment: version control and caches
of tools are neither hashed nor copied.
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
"""Names, at any depth, that are neither hashed nor copied."""

# Timeout of a version command, and the longest version in characters.
_SECONDS = 60
_LONGEST = 200


def tree_digest(directory: Path) -> str:
    """Return `sha256:…` over the relative path, kind, mode and content of all files of a directory.

    Of the mode, only the executable bit counts, as in git: the rest depends on the umask of the
    checkout.

    Raises:
        AgentError: it is not a directory, cannot be read, or contains a device, pipe or socket.
    """
    if not directory.is_dir():
        raise AgentError(f"{directory}: not a directory; expected the agent's files")
    try:
        lines = sorted(_describe(path, directory) for path in _walk(directory))
    except OSError as error:
        raise AgentError(f"{error.filename}: cannot be read: {error.strerror}") from error
    return f"sha256:{sha256_hex(b''.join(lines))}"


def file_digest(path: Path) -> str:
    """Return `sha256:…` of a file's bytes.

    Raises:
        AgentError: it cannot be read, or is not a regular file.
    """
    if path.exists() and not path.is_file():
        # A device or a pipe may never end.
        raise AgentError(f"{path}: not a regular file")
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
    """Yield the directory, or a temporary copy without the ignored names if it contains any.

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
    """Run a shell command on the host and return the first line it prints.

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
        raise AgentError(f"{shown}: timed out after {_SECONDS} s") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-_LONGEST:]
        raise AgentError(f"{shown}: exit code {done.returncode}: {said or 'no output'}")
    return first_line(done.stdout.decode(errors="replace"), shown)


def first_line(output: str, whose: str) -> str:
    """Return the first line of a version command's output.

    Raises:
        AgentError: it is empty or too long for a version.
    """
    line = output.strip().partition("\n")[0].strip()
    if not line or len(line) > _LONGEST:
        found = f"its first line has {len(line)} characters" if line else "it printed nothing"
        raise AgentError(f"{whose}: {found}; expected a version of up to {_LONGEST} on one line")
    return line
