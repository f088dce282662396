"""Pins an agent by the digest of its files, by what its version command prints, or by its command.

The digest covers exactly the files that are copied into the environment: version control and caches
of tools are neither hashed nor copied. A command without files pins itself: its text, the host's
files that it names, and the commits of their git checkouts.
"""

import contextlib
import os
import re
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

# What may be a path in a shell command: words without quotes, operators and expansions.
_WORD = re.compile(r"[^\s'\"`;|&<>(){}$=,*?]+")
# Directories of the operating system: an environment has its own, which its image pins.
_SYSTEM = frozenset(
    {
        "app",
        "bin",
        "boot",
        "dev",
        "etc",
        "lib",
        "lib32",
        "lib64",
        "proc",
        "run",
        "sbin",
        "sys",
        "usr",
    }
    | {"var", "logs", "tests", "solution", "installed-agent", "workspace"}
)
_MOST_FILES = 20
_LARGEST_FILE = 256 << 20
_GIT_SECONDS = 10

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


def pin_command(command: str) -> str:
    """Return what pins a shell command: its digest, those of the host's files it names, and git's.

        command:sha256:…  agent.py@sha256:…  git:COMMIT or git:COMMIT+changes

    Relative paths are looked up in the working directory. Directories of the operating system are
    left out: those of the environment are others. So is a file that cannot be read.
    """
    named = list(dict.fromkeys(filter(_may_be_files, _WORD.findall(command))))
    files = [name for name in named if _is_hashed(name)]
    places = [name for name in named if name in files or Path(name).is_dir()]
    said = [f"command:sha256:{sha256_hex(command.encode())}"]
    for name in files[:_MOST_FILES]:
        with contextlib.suppress(AgentError):
            said.append(f"{name}@{file_digest(Path(name))}")
    commits = (_find_commit(Path(name)) for name in places[:_MOST_FILES])
    return " ".join([*said, *dict.fromkeys(filter(None, commits))])


def _may_be_files(word: str) -> bool:
    parts = Path(word).parts
    is_system = len(parts) > 1 and parts[0] == "/" and parts[1] in _SYSTEM
    return len(word) <= _LONGEST and word.isprintable() and len(parts) > 0 and not is_system


def _is_hashed(name: str) -> bool:
    """Whether a word names a file of the host that can be read, and not too slowly."""
    try:
        found = Path(name).stat()
    except (OSError, ValueError):
        return False
    is_fit = stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST_FILE
    return is_fit and os.access(name, os.R_OK)


def _find_commit(path: Path) -> str | None:
    """Return the commit of the git checkout that holds a path, and whether files differ from it."""
    place = path if path.is_dir() else path.parent
    commit = _ask_git(place, "rev-parse", "HEAD")
    if commit is None:
        return None
    # Untracked files do not count: jobs and ledgers are often written into the checkout.
    changed = _ask_git(place, "status", "--porcelain", "--untracked-files=no")
    return f"git:{commit}{'+changes' if changed else ''}"


def _ask_git(place: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


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
