"""What an agent changed of its environment, path by path, and which of it the tests can rest on.

    work     the working directory, declared artifacts, paths that the instruction names, and new
             files elsewhere that no program reads by itself
    home     homes and temporary places
    system   whatever came with the image outside of these, and what programs read when they start:
             /etc, /usr, /lib, files in /, dotfiles, directories of PATH, installed packages

A clean room has the image and what is not system. Nothing here reads a file.
"""

import posixpath
import re
import sys
from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

import msgspec


class Place(StrEnum):
    """Which part of the environment a path belongs to."""

    WORK = "work"
    HOME = "home"
    SYSTEM = "system"


class Phase(StrEnum):
    """When a path was written."""

    SETUP = "setup"
    """Before the agent began: by the agent's set-up, or when the environment was furnished."""
    AGENT = "agent"
    VERIFICATION = "verification"


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path that differs from the image: a line of changes.jsonl."""

    path: str
    """Absolute, as seen inside; it comes from a stranger."""
    how: str
    """created, changed, deleted, or replaced by something of another type."""
    kind: str
    """file, directory, link, fifo, socket or device."""
    place: Place = Place.WORK
    when: Phase = Phase.AGENT
    mode: str = ""
    """In octal."""
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    sha256: str = ""
    """Of a plain file that was read."""
    target: str = ""
    """Where a link leads."""
    end: str = ""
    """Where it leads in the end, for tests that follow it: empty where nothing is, or what is
    there depends on who looks."""
    xattrs: dict[str, str] = {}
    in_image: bool = False
    """The image has something at that path."""
    mark: str = ""
    """Another one whenever the path was written again; not stored."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """How programs find their files in an environment."""

    workdir: str
    """Where the image has it, links resolved."""
    search_path: tuple[str, ...] = ()
    """Directories of PATH and LD_LIBRARY_PATH."""
    python_path: tuple[str, ...] = ()
    """Directories of PYTHONPATH."""
    shadowing: tuple[str, ...] = ()
    """Names of what was written in directories of PATH and is a program of the image's as well,
    there or elsewhere."""
    provided: Container[str] = frozenset()
    """What the image has where programs search, such as bin/grep and python/yaml."""
    environments: tuple[str, ...] = ()
    """Settings of the Python environments that the image has in the working directory."""
    test_settings: tuple[str, ...] = ()
    """Files in the working directory, or above it, that tell test programs what to run, and did
    not in the image."""
    homes: tuple[str, ...] = ("/root",)
    """Home directories, as the image and the agent's own passwd name them."""


@dataclass(kw_only=True)
class Account:
    """What is known so far of an environment's changes."""

    around: Surroundings
    marks: dict[str, str] = field(default_factory=dict)
    """Of each path that was written before the agent began."""
    before: list[Change] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    late: list[Change] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    """Files of the agent's that the tests may load by themselves."""
    unasked: list[str] = field(default_factory=list)
    """Other work of the agent's that a clean room does without."""
    merged: list[str] = field(default_factory=list)
    """Directories in place of the image's that a clean room has both of."""
    restored: set[str] = field(default_factory=set)
    """Tools of the image that were put back before the tests, which is no change of theirs."""
    is_cut: bool = False
    """Some paths are missing."""
    is_noted: bool = False
    """The agent's changes were looked at."""

    @property
    def system(self) -> list[Change]:
        """What the agent changed of the system."""
        return [each for each in self.changes if each.place is Place.SYSTEM]


_TEMPORARY = (
    *("/tmp/", "/var/tmp/", "/run/", "/var/run/", "/dev/"),  # noqa: S108 - of the environment
    *("/var/log/", "/var/cache/", "/mnt/"),
)
_OURS = ("/logs/", "/tests/", "/solution/", "/harbor/")
_SYSTEM = re.compile(
    r"/(etc|usr|bin|sbin|lib[^/]*|boot|proc|sys)(/|$)"
    r"|/var/(lib/(dpkg|apt|rpm|pacman|apk|python|pam|systemd|misc|ucf)|spool|cache/ldconfig)(/|$)"
    r"|/(nix|snap)(/|$)"
)
_PROGRAMS = re.compile(r"/(usr|bin|sbin|lib[^/]*|boot)(/|$)")
"""Where a path that the instruction names is the agent's only if the image has none."""
_WIDE = frozenset(
    {
        *("/", "/etc", "/usr", "/usr/local", "/usr/share", "/opt", "/var", "/var/lib", "/home"),
        *("/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/include"),
        *("/usr/local/bin", "/usr/local/lib", "/usr/local/include", "/dev", "/proc", "/sys"),
        *("/root", "/tmp", "/run", "/srv", "/mnt", "/boot", "/usr/local/sbin", "/usr/src"),  # noqa: S108
        *("/etc/profile.d", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/apt", "/etc/perl"),
        *("/etc/default", "/etc/skel", "/etc/pam.d", "/etc/security", "/etc/ssl", "/etc/init.d"),
    }
)
"""Directories that say nothing of a task when they are named, or are the working directory."""
_PACKAGES = re.compile(r"/(site-packages|dist-packages|node_modules)(/|$)")
"""Directories that programs run or load files of; those that came with the image are its own."""
_SEARCHED = re.compile(r"/(lib[^/]*|include|s?bin|libexec|share/perl[^/]*)/")
"""Below /usr: where programs look for programs, modules and headers."""
_TEST_PROGRAMS = re.compile(
    r"(python|pip|pypy)[\d.]*|py\.?test|uvx?|node|npm|npx|perl|ruby|make|gcc|cc|tox|nox"
)
"""What tests are run by: a text that mentions one does not ask for it."""
_NAMED = re.compile(r"(?<![\w/.:@~$}])(~?/[\w.+@~-]+(?:/[\w.+@~-]+)*)")
_TEST_SETTINGS = frozenset(
    {
        *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini"),
        *("Makefile", "makefile", "GNUmakefile", ".env", ".envrc", ".coveragerc", ".pdbrc"),
        *(".npmrc", ".yarnrc", ".babelrc", ".mocharc.js", ".mocharc.json", "jest.config.js"),
        *(".python-version", ".tool-versions", ".nvmrc", ".gdbinit", ".lldbinit", ".valgrindrc"),
        *(".sqliterc", ".curlrc", ".wgetrc", ".netrc", ".inputrc", ".rspec", ".gitattributes"),
    }
)
"""Files that common test commands load by themselves where they are started."""
_LOADED_BY_PYTHON = frozenset({"sitecustomize", "usercustomize"})
_TEST_MODULES = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "_virtualenv"})
_MODULES = sys.stdlib_module_names | _TEST_MODULES | _LOADED_BY_PYTHON


def find_named(text: str, homes: Sequence[str] = ("/root",)) -> frozenset[str]:
    """Absolute paths that a text for the agent names, those that are too wide excepted."""
    found = set()
    for match in _NAMED.finditer(text):
        path = match[1].rstrip("./")
        ways = [f"{home}{path[1:]}" for home in homes] if path.startswith("~") else [path]
        found |= {posixpath.normpath(way) for way in ways if way}
    return frozenset(path for path in found if path not in _WIDE and path.startswith("/"))


@dataclass(frozen=True)
class Classifier:
    """Says which part of an environment a changed path belongs to."""

    around: Surroundings
    named: Collection[str] = ()
    """Paths that the task's instruction names, or declares as artifacts."""
    made: Collection[str] = field(default_factory=frozenset)
    """Directories that were made since the image."""
    text: str = ""
    """The instruction."""

    @cached_property
    def _workdir(self) -> str | None:
        workdir = self.around.workdir
        return None if workdir in _WIDE and workdir not in self._homes else workdir

    @cached_property
    def _homes(self) -> tuple[str, ...]:
        return tuple(home for home in self.around.homes if home == "/root" or home not in _WIDE)

    @cached_property
    def _in_workdir(self) -> tuple[str, ...]:
        return _below((self._workdir,) if self._workdir else ())

    @cached_property
    def _in_homes(self) -> tuple[str, ...]:
        return _below(self._homes)

    @cached_property
    def _in_named(self) -> tuple[str, ...]:
        """A home that is named has the dotfiles of another."""
        return _below(place for place in self.named if place not in self._homes)

    @cached_property
    def _in_search(self) -> tuple[str, ...]:
        """Directories that programs are looked for in, but for those that the agent made."""
        own = {self._workdir, *self.made}
        return _below(place for place in self.around.search_path if place not in own)

    def classify(self, change: Change) -> Place:
        """The part that it belongs to."""
        path = change.path
        way = f"{path}/"
        is_work = self._is_named(change, way) or self._is_asked_for(change)
        if is_work or way.startswith(_OURS):
            return Place.WORK
        if self._is_started(path, way):
            return Place.SYSTEM
        is_in_home = way.startswith(self._in_homes)
        # A home that is a link, or another directory, moves all that programs read in it.
        is_moved = change.how == "replaced" and path in (*self._homes, self._workdir)
        if is_moved or (is_in_home and self._is_dotfile(way)):
            return Place.SYSTEM
        if way.startswith(self._in_workdir):
            return Place.WORK
        return Place.HOME if is_in_home else self._classify_elsewhere(change, way)

    def _is_dotfile(self, way: str) -> bool:
        home = next(each for each in self._in_homes if way.startswith(each))
        return way.startswith(".", len(home))

    def _classify_elsewhere(self, change: Change, way: str) -> Place:
        path = change.path
        if _SYSTEM.match(path):
            return Place.SYSTEM
        if way.startswith(_TEMPORARY):
            return Place.HOME
        is_in_root = path.count("/") == 1
        if is_in_root and change.kind != "directory":
            return Place.SYSTEM
        is_new_top = not change.in_image or (is_in_root and change.how == "changed")
        return Place.WORK if is_new_top else Place.SYSTEM

    def _is_started(self, path: str, way: str) -> bool:
        """Whether programs or their modules are looked for there, in a place of the image's."""
        found = _PACKAGES.search(path)
        in_packages = found is not None and path[: found.end(1)] not in self.made
        return in_packages or way.startswith(self._in_search) or path in self.around.environments

    def _is_asked_for(self, change: Change) -> bool:
        """Whether it is a new program that the instruction mentions and the image lacks."""
        directory, _, name = change.path.rpartition("/")
        is_new = not change.in_image and name not in self.around.shadowing
        is_asked = is_mentioned(name, self.text) and not _TEST_PROGRAMS.fullmatch(name)
        return is_new and f"{directory}/" in self._in_search and is_asked

    def _is_named(self, change: Change, way: str) -> bool:
        if not way.startswith(self._in_named):
            return False
        if not _PROGRAMS.match(change.path):
            return True
        # A directory of the image's is named as a place; what is asked for is named itself, or new.
        is_own = change.path in self.named or any(
            way.startswith(one) for one in self._in_named if one[:-1] in self.made
        )
        return not change.in_image and (is_own or not _SEARCHED.search(way))


def find_test_imports(
    changes: Iterable[Change], around: Surroundings, made: Collection[str], text: str = ""
) -> list[str]:
    """Files that a test command started in the working directory would load by itself.

    Settings in directories that the agent did not make, hooks of git, and modules that stand before
    those of Python's library or of pytest. What `text`, the instruction, mentions is not among
    them: it is what the task asks for.
    """
    places, in_workdir = {around.workdir, *around.python_path}, _below((around.workdir,))
    found = []
    for change in changes:
        directory, _, name = change.path.rpartition("/")
        if change.place is not Place.WORK or change.how == "deleted" or is_mentioned(name, text):
            continue
        if name in _TEST_SETTINGS:
            is_loaded = directory not in made and f"{directory}/".startswith(in_workdir)
        elif directory.endswith("/.git/hooks"):
            is_loaded = not name.endswith(".sample") and not (
                is_mentioned("hook", text) or is_mentioned("hooks", text)
            )
        else:
            is_loaded = directory in places and not change.in_image and _is_module(change, name)
        if is_loaded:
            found.append(change.path)
    return found


def is_mentioned(name: str, text: str) -> bool:
    """Whether a text has a name as a word of its own."""
    # Most are not: a pattern for each of many names would take longer than to read the files.
    return name in text and re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text) is not None


def _is_module(change: Change, name: str) -> bool:
    if name.endswith(".pth"):
        return True
    is_file = change.kind == "file" and name.endswith((".py", ".pyc", ".so"))
    return name.partition(".")[0] in _MODULES and (is_file or change.kind in ("directory", "link"))


class LeftOut(msgspec.Struct, frozen=True):
    """What a clean room leaves out of what an agent wrote."""

    paths: frozenset[str]
    """Each with everything below it."""
    plain: frozenset[str]
    """Directories that are made only for what is kept below them."""


def leave_out(
    changes: Sequence[Change], imports: Collection[str], merged: Collection[str] = ()
) -> LeftOut:
    """What a clean room leaves out: all of the system, and what tests would load by themselves.

    Directories of `merged` have there what the image has in them too.
    """
    out = {each.path for each in changes if each.place is Place.SYSTEM} | set(imports)
    kept = [each.path for each in changes if each.path not in out and each.how != "deleted"]
    needed = {way for path in kept for way in _ways_to(path)}
    plain = {
        each.path
        for each in changes
        if each.kind == "directory" and each.path in out and each.path in needed
        # In place of a link or a file of the image's it would hide that.
        if each.how in ("created", "changed")
    }
    return LeftOut(frozenset(out - plain), frozenset({*plain, *merged} - (out - plain)))


def _ways_to(path: str) -> Iterable[str]:
    parent = posixpath.dirname(path)
    while parent != "/":
        yield parent
        parent = posixpath.dirname(parent)


def _below(places: Iterable[str]) -> tuple[str, ...]:
    """How directories, and whatever is in them, begin with a slash at their end."""
    return tuple(f"{place.rstrip('/')}/" for place in places)
