"""What dpkg's records, as far as they were written since the image, say about a path.

    *.md5sums     digests of a package's files
    *.list        all its paths: also directories, links and configuration files
    status        which packages are installed, and digests of their configuration files
    alternatives  links that packages share, such as /usr/bin/editor

The agent can write all of them, so they excuse a change but prove nothing: the clean room has none
of them. Their number and size are limited; beyond the limits they excuse nothing. Does not read
files itself.
"""

import io
import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

DPKG = "/var/lib/dpkg"
_INFO = f"{DPKG}/info"
_ALTERNATIVES = f"{DPKG}/alternatives"
_LINKS = "/etc/alternatives"
_INSTALLED = b"Status: install ok installed"
_PACKAGE = b"Package: "
# With merged directories, packages may still name what is below /usr without it.
_MERGED = re.compile(r"/usr(?=/(bin|sbin|lib[^/]*)/)")
# Records of dpkg and apt that are data. Scripts of packages are run, so only new ones count.
_DATA = re.compile(
    r"/var/lib/apt(/.*)?"
    r"|/var/lib/dpkg(/(info|updates|triggers|parts|alternatives)(/[^/]+)?)?"
    r"|/var/lib/dpkg/((status|available|diversions|statoverride)(-old)?|lock|lock-frontend|arch)"
)
_SCRIPT = re.compile(r".*\.(preinst|postinst|prerm|postrm|config|triggers)")
# Limits of what is read. A desktop of 3,000 packages has 6,000 files with a million lines, 80 MB.
_MOST_FILES = 20_000
_MOST_BYTES = 128 << 20
_MOST_LINES = 1_500_000


class LineReader:
    """Reads lines of files that the agent can write, up to a limit for all of them together."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        """Read with `read`, which returns None for what is not a regular file of a usual size."""
        self._read = read
        self._n_files = _MOST_FILES
        self._n_bytes = _MOST_BYTES
        self._n_lines = _MOST_LINES

    @property
    def is_over(self) -> bool:
        """Whether there was more than may be read; then nothing is read any more."""
        return min(self._n_files, self._n_bytes, self._n_lines) < 0

    def read_lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a file, until the limit."""
        self._n_files -= 1
        data = b"" if self.is_over else self._read(path) or b""
        self._n_bytes -= len(data)
        # Not all at once: a list of empty lines takes more memory than the file.
        for line in io.BytesIO(b"" if self.is_over else data):
            self._n_lines -= 1
            if self._n_lines < 0:
                return
            yield line.removesuffix(b"\n")


@dataclass(slots=True)
class _Known:
    """Lines of the records, in bytes: a text with one rare character takes four times as much."""

    paths: set[bytes] = field(default_factory=set)
    sums: set[bytes] = field(default_factory=set)
    """Of packages that are not installed, by dpkg's status."""
    installed: set[bytes] = field(default_factory=set)
    """The same of installed packages."""
    settings: set[bytes] = field(default_factory=set)
    """Configuration files of installed packages, with their digests."""
    links: set[bytes] = field(default_factory=set)
    """Links that lead to an alternative."""
    choices: set[tuple[bytes, bytes]] = field(default_factory=set)
    """Names of alternatives, with a possible target."""


@dataclass(frozen=True)
class DpkgRecords:
    """The records of one sandbox that were written since the image; each is read once."""

    list_written: Callable[[str], Iterable[str]]
    """Return the names that were written in a directory."""
    read: Callable[[str], bytes | None]
    """Return what was written to a regular file."""

    def has_file(self, path: str, md5: str) -> bool:
        """Whether a package brought a file with that digest."""
        known = self._known
        is_listed = any(line in known.sums for line in _sums_of(path, md5))
        return is_listed or self.has_installed(path, md5)

    def has_path(self, path: str) -> bool:
        """Whether a package lists a path: a directory or a link."""
        return any(os.fsencode(way) in self._known.paths for way in _ways(path))

    def has_installed(self, path: str, md5: str) -> bool:
        """Whether an installed package, by dpkg's status, brought a file with that digest."""
        known = self._known
        is_listed = any(line in known.installed for line in _sums_of(path, md5))
        return is_listed or os.fsencode(f"{path} {md5}") in known.settings

    def is_alternative(self, path: str, target: str) -> bool:
        """Whether a link is one that update-alternatives makes, with a target that it knows."""
        directory, name = posixpath.split(path)
        if directory == _LINKS:
            return (os.fsencode(name), os.fsencode(target)) in self._known.choices
        return posixpath.dirname(target) == _LINKS and os.fsencode(path) in self._known.links

    def is_own(self, path: str, *, is_new: bool) -> bool:
        """Whether a path is one of the records of dpkg and apt themselves."""
        is_data = _DATA.fullmatch(path) is not None
        return is_data and (is_new or not _SCRIPT.fullmatch(path))

    @cached_property
    def has_lists(self) -> bool:
        """Whether the list of a package was written; reads none."""
        return any(name.endswith(".list") for name in self.list_written(_INFO))

    @cached_property
    def is_empty(self) -> bool:
        """Whether dpkg installed nothing, or its records are beyond the limits."""
        return not self._known.paths

    @cached_property
    def _known(self) -> _Known:
        reader, known = LineReader(self.read), _Known()
        self._add_packages(reader, known)
        self._add_alternatives(reader, known)
        return _Known() if reader.is_over else known

    def _add_packages(self, reader: LineReader, known: _Known) -> None:
        packages = set(_parse_status(reader.read_lines(f"{DPKG}/status"), known.settings))
        for name in self.list_written(_INFO):
            package, _, ending = name.rpartition(".")
            if ending == "list":
                kept = known.paths
            elif ending == "md5sums":
                # Packages of which several architectures can be installed have theirs in the name.
                is_installed = os.fsencode(package.partition(":")[0]) in packages
                kept = known.installed if is_installed else known.sums
            else:
                continue
            kept.update(filter(None, reader.read_lines(f"{_INFO}/{name}")))
            if reader.is_over:
                return

    def _add_alternatives(self, reader: LineReader, known: _Known) -> None:
        for name in self.list_written(_ALTERNATIVES):
            lines = reader.read_lines(f"{_ALTERNATIVES}/{name}")
            _parse_alternative(os.fsencode(name), lines, known)
            if reader.is_over:
                return


def _ways(path: str) -> tuple[str, ...]:
    """Return the names that packages may have for a path."""
    short = _MERGED.sub("", path, count=1)
    return (path,) if short == path else (path, short)


def _sums_of(path: str, md5: str) -> Iterator[bytes]:
    """Yield the lines of md5sums that a file may have."""
    return (os.fsencode(f"{md5}  {way.lstrip('/')}") for way in _ways(path))


def _parse_status(lines: Iterable[bytes], settings: set[bytes]) -> Iterator[bytes]:
    """Yield the names of installed packages, and add their configuration files to `settings`."""
    name, is_installed, is_inside = b"", False, False
    found: list[bytes] = []
    for line in itertools.chain(lines, (b"",)):
        if not line:
            if name and is_installed:
                settings.update(found)
                yield name
            name, is_installed, is_inside = b"", False, False
            found = []
        elif not line.startswith(b" "):
            is_inside = line == b"Conffiles:"
            is_installed |= line == _INSTALLED
            name = name or (line[len(_PACKAGE) :] if line.startswith(_PACKAGE) else b"")
        elif is_inside and len(words := line.split(maxsplit=2)) >= 2:
            found.append(b" ".join(words[:2]))


def _parse_alternative(name: bytes, lines: Iterator[bytes], known: _Known) -> None:
    """Add the links and targets of a record of update-alternatives; those of a cut one in part.

    auto            how the current target was chosen
    link
    name, link      of each link that changes with it
    (empty)
    target          of each choice, then its priority, and the targets of the other links,
    (empty)         which may be empty
    """
    next(lines, None)
    known.links.add(next(lines, b""))
    others: list[bytes] = []
    while other := next(lines, b""):
        others.append(other)
        known.links.add(next(lines, b""))
    while target := next(lines, b""):
        next(lines, None)
        known.choices.add((name, target))
        known.choices.update(zip(others, lines, strict=False))
