"""What was changed of a sandbox's root, read on the host from the directories below its overlays.

Nothing is run or asked inside. What the agent wrote is never opened through a link, wherever on the
way it lies, nor when it is no plain file: on the host a link would lead to the host's own files.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from proctor.digest import md5_hex, sha256_hex
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.tools import File, Kind

_MOST_LINKS = 40
_MOST_BYTES = 64 << 20
"""Of a file; a larger one is told from others by its size."""
_BINARY = b"\x7fELF"
_LISTS = "/var/lib/dpkg/info"
_OTHER_DATABASES = ("/lib/apk/db", "/var/lib/rpm", "/usr/lib/sysimage/rpm", "/var/lib/pacman/local")
_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class LayeredChanges:
    """The changes of one sandbox; see Changes. It looks once at lists of packages."""

    parts: tuple[Part, ...]

    def list_tops(self) -> set[str]:
        """Names in the root below which something was written."""
        tops = {
            name for part in self.parts if part.target == "/" for name, _ in _scan(part.upper, "")
        }
        deeper = [part for part in self.parts if part.target != "/"]
        return tops | {part.target.split("/")[1] for part in deeper if any(_scan(part.upper, ""))}

    def resolve(self, directory: str) -> str:
        """Where a directory really is in the image."""
        rest, done = [*PurePosixPath(directory).parts[1:]], PurePosixPath("/")
        for _ in range(_MOST_LINKS):
            if not rest:
                break
            name = rest.pop(0)
            found = self.find_in_image(str(done / name))
            if found is None or found.kind is not Kind.LINK:
                done = done.parent if name == ".." else done / name
                continue
            target = PurePosixPath(found.content)
            done = PurePosixPath("/") if target.is_absolute() else done
            rest = [part for part in target.parts if part != "/"] + rest
        return str(done)

    def list_written(self, directory: str) -> Iterable[str]:
        """Names of files that were written in a directory since the image."""
        part, rest = self._place(directory)
        return sorted(name for name, is_directory in _scan(part.upper, rest) if not is_directory)

    def list_directories(self, directory: str) -> Iterable[str]:
        """Names of the directories in a directory."""
        part, rest = self._place(directory)
        found = (_scan(top, rest) for top in (part.upper, *part.lowers))
        return sorted({name for names in found for name, is_directory in names if is_directory})

    def find_now(self, path: str) -> File | None:
        """What was written at a path."""
        part, rest = self._place(path)
        return _load(part.upper, rest)

    def find_in_image(self, path: str) -> File | None:
        """What the image has at a path."""
        part, rest = self._place(path)
        top = _find_layer(part, rest)
        return None if top is None else _load(top, rest)

    def find_kind_in_image(self, path: str) -> File | None:
        """What the image has at a path; of a plain file nothing is read."""
        part, rest = self._place(path)
        top = _find_layer(part, rest)
        found = None if top is None else _look(top, rest)
        if top is None or found is None:
            return None
        return _load(top, rest) if stat.S_ISLNK(found.st_mode) else File(Kind.OTHER, "")

    def list_in_image(self, directory: str) -> Iterable[str]:
        """Names of what the image has in a directory."""
        part, rest = self._place(self.resolve(directory))
        return sorted({name for lower in part.lowers for name, _ in _scan(lower, rest)})

    def find_original(self, path: str) -> str | None:
        """Where on the host the image's file of a path lies."""
        part, rest = self._place(path)
        top = _find_layer(part, rest)
        return None if top is None else f"{top}/{rest}"

    def read_now(self, path: str) -> str:
        """The text that was written at a path; empty where none was."""
        return "\n".join(self._read_lines(path))

    def read_in_image(self, path: str) -> str:
        """The text that the image has at a path; empty where it has none."""
        part, rest = self._place(path)
        top = _find_layer(part, rest)
        data = None if top is None else _read(top, rest)
        return (data or b"").decode(errors="replace")

    def mark_of(self, path: str) -> str:
        """What is another one whenever a file was written again."""
        part, rest = self._place(path)
        found = _look(part.upper, rest)
        return f"{found.st_ino} {found.st_ctime_ns}" if found else ""

    def is_packaged(self, path: str) -> bool:
        """Whether a package manager says that it put there what was written."""
        part, rest = self._place(path)
        content = _read(part.upper, rest)
        if content is None:
            return False
        directory, _, name = path.rpartition("/")
        return (
            self._has_other_packages
            or f"{md5_hex(content)}  {path.lstrip('/')}" in self._packaged
            or (name.endswith(".pth") and name in self._list_recorded(directory))
        )

    def runs_code(self, path: str) -> bool:
        """Whether a .pth file has a line that is run."""
        part, rest = self._place(path)
        lines = (_read(part.upper, rest) or b"").splitlines()
        return any(line.startswith((b"import ", b"import\t")) for line in lines)

    @cached_property
    def _packaged(self) -> frozenset[str]:
        """Lines of Debian's lists that were written since the image: digest and path."""
        names = (name for name in self.list_written(_LISTS) if name.endswith(".md5sums"))
        return frozenset(line for name in names for line in self._read_lines(f"{_LISTS}/{name}"))

    @cached_property
    def _has_other_packages(self) -> bool:
        """Whether a package manager whose lists are not read here was at work."""
        places = map(self._place, _OTHER_DATABASES)
        return any(any(_scan(part.upper, rest)) for part, rest in places)

    def _list_recorded(self, directory: str) -> frozenset[str]:
        """Names that a RECORD of pip's in a directory lists."""
        kept = (name for name in self.list_directories(directory) if name.endswith(".dist-info"))
        lines = (line for name in kept for line in self._read_lines(f"{directory}/{name}/RECORD"))
        return frozenset(line.partition(",")[0] for line in lines)

    def _read_lines(self, path: str) -> list[str]:
        part, rest = self._place(path)
        return (_read(part.upper, rest) or b"").decode(errors="replace").split("\n")

    def _place(self, path: str) -> tuple[Part, str]:
        """The overlay that a path is on, and the rest of the path there."""
        inside = PurePosixPath(path)
        holding = (part for part in self.parts if inside.is_relative_to(part.target))
        part = max(holding, key=lambda part: len(part.target))
        rest = str(inside.relative_to(part.target))
        return part, "" if rest == "." else rest


def _find_layer(part: Part, rest: str) -> str | None:
    """The topmost layer below an overlay that says what is at a path; None: nothing is."""
    for lower in part.lowers:
        if found := _look(lower, rest):
            return None if _is_whiteout(found) else lower
    return None


@contextmanager
def _way_to(top: str, rest: str) -> Iterator[tuple[int, str]]:
    """The directory of a path, opened, and the name in it; no link is followed below `top`.

    Raises:
        OSError: there is no such directory.
    """
    *way, name = rest.split("/")
    fd = os.open(top, _WAY)
    try:
        for step in way:
            deeper = os.open(step, _WAY, dir_fd=fd)
            os.close(fd)
            fd = deeper
        yield fd, name or "."
    finally:
        os.close(fd)


def _look(top: str, rest: str) -> os.stat_result | None:
    with suppress(OSError), _way_to(top, rest) as (fd, name):
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    return None


def _scan(top: str, rest: str) -> Iterator[tuple[str, bool]]:
    """Names in a directory, whiteouts excepted, and whether each is a directory."""
    with suppress(OSError), _way_to(top, rest) as (fd, name):
        directory = os.open(name, _PLAIN | os.O_DIRECTORY, dir_fd=fd)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    is_directory = entry.is_dir(follow_symlinks=False)
                    # Only of what is neither is more to be known; to ask for it takes long.
                    if is_directory or entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        yield entry.name, is_directory
                    elif not _is_whiteout(entry.stat(follow_symlinks=False)):
                        yield entry.name, False
        finally:
            os.close(directory)


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _load(top: str, rest: str) -> File | None:
    found = _look(top, rest)
    if found is None or _is_whiteout(found):
        return None
    if stat.S_ISDIR(found.st_mode):
        return File(Kind.DIRECTORY, "")
    if stat.S_ISLNK(found.st_mode):
        with suppress(OSError), _way_to(top, rest) as (fd, name):
            return File(Kind.LINK, os.readlink(name, dir_fd=fd))
    content = _read(top, rest)
    if content is None:
        return File(Kind.OTHER, f"{found.st_size} bytes")
    return File(Kind.BINARY if content.startswith(_BINARY) else Kind.FILE, sha256_hex(content))


def _read(top: str, rest: str) -> bytes | None:
    """A plain file that is not too large; None for all else."""
    with suppress(OSError), _way_to(top, rest) as (way, name):
        fd = os.open(name, _PLAIN, dir_fd=way)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES:
                return file.read(_MOST_BYTES + 1)
    return None
