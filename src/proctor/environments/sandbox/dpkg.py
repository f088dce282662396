"""What dpkg's records, as far as they were written since the image, say about a path.

    *.md5sums     digests of a package's files
    *.list        all its paths: also directories, links and configuration files
    status        which packages are installed, and digests of their configuration files
    alternatives  links that packages share, such as /usr/bin/editor

The agent can write all of them, so they excuse a change but prove nothing: the clean room has none
of them. Does not read files itself.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

DPKG = "/var/lib/dpkg"
_INFO = f"{DPKG}/info"
_ALTERNATIVES = f"{DPKG}/alternatives"
_LINKS = "/etc/alternatives"
_INSTALLED = "Status: install ok installed"
# With merged directories, packages may still name what is below /usr without it.
_MERGED = re.compile(r"/usr(?=/(bin|sbin|lib[^/]*)/)")
# Records of dpkg and apt that are data. Scripts of packages are run, so only new ones count.
_DATA = re.compile(
    r"/var/lib/apt(/.*)?"
    r"|/var/lib/dpkg(/(info|updates|triggers|parts|alternatives)(/[^/]+)?)?"
    r"|/var/lib/dpkg/((status|available|diversions|statoverride)(-old)?|lock|lock-frontend|arch)"
)
_SCRIPT = re.compile(r".*\.(preinst|postinst|prerm|postrm|config|triggers)")


@dataclass(frozen=True)
class DpkgRecords:
    """The records of one sandbox that were written since the image; each is read once."""

    list_written: Callable[[str], Iterable[str]]
    """Return the names that were written in a directory."""
    read_lines: Callable[[str], Iterable[str]]
    """Return the lines that were written to a file."""

    def has_file(self, path: str, md5: str) -> bool:
        """Whether a package brought a file with that digest."""
        lines = (f"{md5}  {way.lstrip('/')}" in self._files for way in _ways(path))
        return any(lines) or (path, md5) in self._settings

    def has_path(self, path: str) -> bool:
        """Whether a package lists a path: a directory or a link."""
        return any(way in self._paths for way in _ways(path))

    def has_installed(self, path: str, md5: str) -> bool:
        """Whether an installed package, by dpkg's status, brought a file with that digest."""
        lines = (f"{md5}  {way.lstrip('/')}" in self._installed for way in _ways(path))
        return any(lines) or (path, md5) in self._settings

    def is_alternative(self, path: str, target: str) -> bool:
        """Whether a link is one that update-alternatives makes, with a target that it knows."""
        directory, name = posixpath.split(path)
        if directory == _LINKS:
            return any(name in known and target in known for known in self._alternatives)
        is_link = posixpath.dirname(target) == _LINKS
        return is_link and any(path in known for known in self._alternatives)

    def is_own(self, path: str, *, is_new: bool) -> bool:
        """Whether a path is one of the records of dpkg and apt themselves."""
        is_data = _DATA.fullmatch(path) is not None
        return is_data and (is_new or not _SCRIPT.fullmatch(path))

    @cached_property
    def is_empty(self) -> bool:
        """Whether dpkg installed nothing."""
        return not any(name.endswith(".list") for name in self.list_written(_INFO))

    @cached_property
    def _files(self) -> frozenset[str]:
        return frozenset(self._read_all(_INFO, ".md5sums"))

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(self._read_all(_INFO, ".list"))

    @cached_property
    def _alternatives(self) -> list[frozenset[str]]:
        """For each name: itself, those that change with it, their links, and possible targets."""
        names = self.list_written(_ALTERNATIVES)
        return [frozenset((name, *self.read_lines(f"{_ALTERNATIVES}/{name}"))) for name in names]

    @cached_property
    def _installed(self) -> frozenset[str]:
        lists = (name for name in self.list_written(_INFO) if name.endswith(".md5sums"))
        # Packages of which several architectures can be installed have theirs in these names.
        names = (
            name
            for name in lists
            if name.removesuffix(".md5sums").partition(":")[0] in self._status
        )
        return frozenset(line for name in names for line in self.read_lines(f"{_INFO}/{name}"))

    @cached_property
    def _settings(self) -> frozenset[tuple[str, str]]:
        """Configuration files of installed packages, with their digests."""
        return frozenset(each for found in self._status.values() for each in found)

    @cached_property
    def _status(self) -> dict[str, list[tuple[str, str]]]:
        """Names of the installed packages, with their configuration files."""
        found: dict[str, list[tuple[str, str]]] = {}
        text = "\n".join(self.read_lines(f"{DPKG}/status"))
        for paragraph in text.split("\n\n"):
            lines = paragraph.split("\n")
            names = [line[9:] for line in lines if line.startswith("Package: ")]
            if names and _INSTALLED in lines:
                found[names[0]] = list(_parse_settings(lines))
        return found

    def _read_all(self, directory: str, ending: str) -> Iterator[str]:
        for name in self.list_written(directory):
            if name.endswith(ending):
                yield from filter(None, self.read_lines(f"{directory}/{name}"))


def _ways(path: str) -> tuple[str, ...]:
    """Return the names that packages may have for a path."""
    short = _MERGED.sub("", path, count=1)
    return (path,) if short == path else (path, short)


def _parse_settings(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    is_inside = False
    for line in lines:
        if not line.startswith(" "):
            is_inside = line == "Conffiles:"
        elif is_inside and len(words := line.split()) >= 2:
            yield words[0], words[1]
