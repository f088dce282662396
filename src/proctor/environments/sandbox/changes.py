"""Changes of a sandbox's root, read on the host from the layers of its overlays.

Nothing is run inside. Files of the agent are never opened through a symlink anywhere in their path,
which would lead to files of the host, and only if they are regular files.
"""

import asyncio
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Protocol

from proctor.digest import md5_hex, sha256_hex
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.command import PATH
from proctor.environments.sandbox.dpkg import DpkgRecords, LineReader
from proctor.environments.tools import BUILT, MOVED, File, Kind, Lookup
from proctor.errors import SandboxError
from proctor.trial.environment import ChangedFile

_MOST_LINKS = 40
# Largest file that is read; larger ones are compared by size.
_MOST_BYTES = 64 << 20
# Bytes of files that are hashed to find them in the records of packages.
_MOST_HASHED = 4 << 30
# Smaller files are hashed again for each link to them: that is quick, and takes no memory.
_LEAST_KEPT = 1 << 16
_BINARY = b"\x7fELF"
_OTHER_DATABASES = ("/lib/apk/db", "/var/lib/rpm", "/usr/lib/sysimage/rpm", "/var/lib/pacman/local")
_CODE = re.compile(rb"(^|[\r\n])import[ \t]")
_PIP = ".dist-info"
_LOADERS_CACHE = "/etc/ld.so.cache"
_LIBRARY = re.compile(rb"/(usr|lib\w*)/.+", re.DOTALL)
# Only Linux has O_PATH; on macOS, -e docker imports this module.
_WAY = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _Hashed:
    """MD5 digests of written files, as dpkg's lists contain them, up to a limit of bytes."""

    def __init__(self) -> None:
        self._n_bytes = _MOST_HASHED
        # By inode: the agent can make any number of links to a large file.
        self._kept: dict[tuple[int, int, int], str] = {}

    def find_md5(self, part: Part, rest: str) -> str | None:
        """Return the digest of a regular file; None for anything else, and beyond the limit."""
        found = _look(part.upper, rest)
        if found is None:
            return None
        key = found.st_dev, found.st_ino, found.st_ctime_ns
        if key in self._kept:
            return self._kept[key]
        content = _read(part.upper, rest) if found.st_size <= self._n_bytes else None
        if content is None:
            return None
        self._n_bytes -= len(content)
        md5 = md5_hex(content)
        if len(content) >= _LEAST_KEPT:
            self._kept[key] = md5
        return md5


@dataclass(frozen=True)
class LayeredChanges:
    """The changes of one sandbox; see Changes. Lists of packages are read once."""

    parts: tuple[Part, ...]

    def list_tops(self) -> Iterator[str]:
        """Yield the top-level names below which something was written."""
        for part in self.parts:
            if part.target == "/":
                yield from (name for name, _ in _scan(part.upper, ""))
            elif any(_scan(part.upper, "")):
                yield part.target.split("/")[1]

    def resolve(self, directory: str) -> str:
        """Resolve symlinks of a directory in the image."""
        # Plain strings: this is called for every directory of PATH, and pathlib is slow.
        rest, done = [name for name in directory.split("/") if name not in ("", ".")], ""
        for _ in range(_MOST_LINKS):
            if not rest:
                break
            name = rest.pop(0)
            found = self.find_kind_in_image(f"{done}/{name}")
            if found is None or found.kind is not Kind.LINK:
                done = done.rpartition("/")[0] if name == ".." else f"{done}/{name}"
                continue
            done = "" if found.content.startswith("/") else done
            rest = [part for part in found.content.split("/") if part not in ("", ".")] + rest
        return done or "/"

    def list_written(self, directory: str) -> Iterable[str]:
        """Return the names of files that were written in a directory."""
        part, rest = self._place(directory)
        return sorted(name for name, is_directory in _scan(part.upper, rest) if not is_directory)

    def list_directories(self, directory: str) -> Iterable[str]:
        """Return the names of the directories in a directory."""
        part, rest = self._place(directory)
        found = (_scan(top, rest) for top in (part.upper, *part.lowers))
        return sorted({name for names in found for name, is_directory in names if is_directory})

    def find_now(self, path: str) -> File | None:
        """Return what was written at a path."""
        part, rest = self._place(path)
        return _load(part.upper, rest)

    def find_in_image(self, path: str) -> File | None:
        """Return what the image has at a path."""
        part, rest = self._place(path)
        top = _find_layer(part, rest)
        return None if top is None else _load(top, rest)

    def find_kind_in_image(self, path: str) -> File | None:
        """Return what the image has at a path, without reading regular files."""
        part, rest = self._place(path)
        for lower in part.lowers:
            if found := _look(lower, rest):
                return _load_kind(lower, rest, found)
        return None

    def _find_kind_now(self, path: str) -> File | None:
        """Return what was written at a path, without reading regular files."""
        part, rest = self._place(path)
        found = _look(part.upper, rest)
        return None if found is None else _load_kind(part.upper, rest, found)

    def list_in_image(self, directory: str) -> Iterable[str]:
        """Return the names of the image in a directory."""
        part, rest = self._place(self.resolve(directory))
        return sorted({name for lower in part.lowers for name, _ in _scan(lower, rest)})

    def find_original(self, path: str) -> str | None:
        """Return the path on the host of the image's file."""
        part, rest = self._place(path)
        top = _find_layer(part, rest)
        return None if top is None else f"{top}/{rest}"

    def read_now(self, path: str) -> str:
        """Return the text that was written at a path; empty if none was."""
        return (self._read_now(path) or b"").decode(errors="replace")

    def read_in_image(self, path: str) -> str:
        """Return the text that the image has at a path; empty if it has none."""
        part, rest = self._place(path)
        top = _find_layer(part, rest)
        data = None if top is None else _read(top, rest)
        return (data or b"").decode(errors="replace")

    def mark_of(self, path: str) -> str:
        """Return a value that changes whenever a file is rewritten."""
        part, rest = self._place(path)
        found = _look(part.upper, rest)
        return f"{found.st_ino} {found.st_ctime_ns}" if found else ""

    def is_packaged(self, path: str) -> bool:
        """Whether the file is the one that a package manager installed, by its records."""
        md5 = self._hashed.find_md5(*self._place(path))
        if md5 is None:
            return False
        directory, _, name = path.rpartition("/")
        return (
            self._has_other_packages
            or self.dpkg.has_file(path, md5)
            or (name.endswith(".pth") and os.fsencode(name) in self._list_recorded(directory))
        )

    def is_packaged_link(self, path: str) -> bool:
        """Whether a package brought a link, and the image or a package the file it leads to."""
        if not self.dpkg.has_path(path):
            return False
        for _ in range(_MOST_LINKS):
            found = self._find_kind_now(path)
            if found is None:
                return self.find_kind_in_image(path) is not None
            if found.kind is not Kind.LINK:
                return self.is_packaged(path)
            target = found.content
            path = os.path.normpath(target if target.startswith("/") else f"{path}/../{target}")
        return False

    def is_alternative(self, path: str) -> bool:
        """Whether a link was made by update-alternatives, by its records."""
        found = self._find_kind_now(path)
        if found is None or found.kind is not Kind.LINK:
            return False
        return self.dpkg.is_alternative(path, found.content)

    def is_installed(self, path: str, *, is_new: bool) -> bool:
        """Whether a path is as a Debian package installed it, or is a record of that.

        Files that replace the image's are not: an agent could have written the records.
        """
        dpkg = self.dpkg
        if dpkg.is_empty or path == _LOADERS_CACHE:
            return not dpkg.is_empty and self._is_plain_cache()
        if dpkg.is_own(path, is_new=is_new) or self.is_alternative(path):
            return True
        return is_new and dpkg.has_path(path) and self._is_as_installed(path)

    def _is_as_installed(self, path: str) -> bool:
        part, rest = self._place(path)
        found = _look(part.upper, rest)
        if found is None or stat.S_ISDIR(found.st_mode):
            return found is not None
        if stat.S_ISLNK(found.st_mode):
            return self.is_packaged_link(path)
        md5 = self._hashed.find_md5(part, rest)
        return md5 is not None and self.dpkg.has_installed(path, md5)

    def _is_plain_cache(self) -> bool:
        """Whether the dynamic loader's cache names only libraries in directories of the system.

        What the agent changed there is listed by itself.
        """
        part, rest = self._place(_LOADERS_CACHE)
        # Other fields are numbers, which contain a zero byte before the fifth.
        found = re.finditer(rb"(?<=\0)/[^\0]{4,}", _read(part.upper, rest) or b"")
        paths = (each[0] for each in found)
        return all(_LIBRARY.fullmatch(path) and b"/../" not in path for path in paths)

    def runs_code(self, path: str) -> bool:
        """Whether a .pth file contains a line that Python executes."""
        return _CODE.search(self._read_now(path) or b"") is not None

    @cached_property
    def dpkg(self) -> DpkgRecords:
        """Records of Debian packages that were written since the image."""
        return DpkgRecords(self._scan_written, self._read_now)

    @cached_property
    def _pip(self) -> LineReader:
        return LineReader(self._read_now)

    @cached_property
    def _recorded(self) -> dict[str, frozenset[bytes]]:
        return {}

    @cached_property
    def _hashed(self) -> _Hashed:
        return _Hashed()

    @cached_property
    def _has_other_packages(self) -> bool:
        """Whether a package manager was used whose lists are not read here."""
        places = map(self._place, _OTHER_DATABASES)
        return any(any(_scan(part.upper, rest)) for part, rest in places)

    def _list_recorded(self, directory: str) -> frozenset[bytes]:
        """Return the names of .pth files that pip's RECORD files in a directory list."""
        if directory not in self._recorded:
            kept = [name for name in self.list_directories(directory) if name.endswith(_PIP)]
            places = (f"{directory}/{name}/RECORD" for name in kept)
            lines = (line for place in places for line in self._pip.read_lines(place))
            names = (line.partition(b",")[0] for line in lines)
            found = frozenset(name for name in names if name.endswith(b".pth"))
            self._recorded[directory] = frozenset() if self._pip.is_over else found
        return self._recorded[directory]

    def _scan_written(self, directory: str) -> Iterator[str]:
        """Yield the same as list_written, unsorted: there may be millions."""
        part, rest = self._place(directory)
        return (name for name, is_directory in _scan(part.upper, rest) if not is_directory)

    def _read_now(self, path: str) -> bytes | None:
        part, rest = self._place(path)
        return _read(part.upper, rest)

    def _place(self, path: str) -> tuple[Part, str]:
        """Return the overlay of a path, and the path relative to it."""
        # Plain strings: this is called some fifty times a trial, and pathlib is slow.
        inside = "/" + "/".join(name for name in path.split("/") if name not in ("", "."))
        holding = (part for part in self.parts if _is_below(inside, part.target))
        # The innermost overlay hides the others.
        part = max(holding, key=lambda part: len(part.target))
        return part, inside[len(part.target) :].strip("/")


def _is_below(path: str, directory: str) -> bool:
    return directory in ("/", path) or path.startswith(f"{directory}/")


def _find_layer(part: Part, rest: str) -> str | None:
    """Return the topmost layer of the image that has a path; None if it does not exist."""
    for lower in part.lowers:
        if found := _look(lower, rest):
            return None if _is_whiteout(found) else lower
    return None


@contextmanager
def _way_to(top: str, rest: str) -> Iterator[tuple[int, str]]:
    """Open the directory of a path without following symlinks; yields it with the name in it."""
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
    """Yield the names in a directory, without whiteouts, and whether each is a directory."""
    with suppress(OSError), _way_to(top, rest) as (fd, name):
        directory = os.open(name, _PLAIN | os.O_DIRECTORY, dir_fd=fd)
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    is_directory = entry.is_dir(follow_symlinks=False)
                    # Whiteouts are devices, so other kinds need no stat call, which is slow.
                    if is_directory or entry.is_symlink() or entry.is_file(follow_symlinks=False):
                        yield entry.name, is_directory
                    elif not _is_whiteout(entry.stat(follow_symlinks=False)):
                        yield entry.name, False
        finally:
            os.close(directory)


def _is_whiteout(found: os.stat_result) -> bool:
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def _load_kind(top: str, rest: str, found: os.stat_result) -> File | None:
    """Return what was found at a path, without reading regular files; None for a whiteout."""
    if stat.S_ISLNK(found.st_mode):
        return _load(top, rest)
    return None if _is_whiteout(found) else File(Kind.OTHER, "")


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
    """Read a regular file that is not too large; None for anything else."""
    with suppress(OSError), _way_to(top, rest) as (way, name):
        fd = os.open(name, _PLAIN, dir_fd=way)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_BYTES:
                return file.read(_MOST_BYTES + 1)
    return None


# Restores the image's tools before the tests, if the agent changed them
#
# proctor.environments.tools finds the changes. Files are restored from the image's layers on the
# host, and added files are removed, in the agent's sandbox or container itself.


_HOME = "/root"


def lookup_of(env: Mapping[str, str], workdir: str) -> Lookup:
    """Return how tests with these variables find their tools."""
    places = [place for place in env.get("PATH", PATH).split(":") if place.startswith("/")]
    homes = dict.fromkeys((_HOME, env.get("HOME", _HOME)))
    return Lookup(places, [home for home in homes if home.startswith("/")], workdir)


class Place(Protocol):
    """A sandbox, or the root of a container."""

    async def put(self, source: Path, target: str) -> None:
        """Copy the contents of a directory into another."""

    async def remove(self, paths: Sequence[str]) -> None:
        """Remove files, if they exist."""


async def give_back(place: Place, changes: LayeredChanges, changed: Sequence[ChangedFile]) -> None:
    """Replace changed files by the image's, and remove added ones.

    Raises:
        SandboxError: a directory was replaced, or a file cannot be written.
    """
    moved = next((file.path for file in changed if file.how == MOVED), None)
    if moved is not None:
        raise SandboxError(f"{moved} is no longer the image's directory, and cannot be restored")
    # An interpreter that was built may be what the task asks for, so it stays.
    owed_files = [file.path for file in changed if file.how != BUILT]
    originals = {path: changes.find_original(path) for path in owed_files}
    await place.remove([path for path, original in originals.items() if original is None])
    owed = sorted((path, original) for path, original in originals.items() if original)
    for directory, files in groupby(owed, lambda file: file[0].rpartition("/")[0]):
        with tempfile.TemporaryDirectory(prefix="proctor-tools-") as stage:
            await asyncio.to_thread(_gather, Path(stage), list(files))
            await place.put(Path(stage), directory)


def _gather(stage: Path, files: Iterable[tuple[str, str]]) -> None:
    for path, original in files:
        shutil.copy2(original, stage / path.rpartition("/")[2], follow_symlinks=False)
