"""Classify what an agent changed in its environment, and decide what a clean room leaves out.

    work     the working directory, declared artifacts, paths named in the instruction, and new
             files elsewhere that no program reads by itself
    home     homes and temporary directories
    system   everything else that came with the image, and whatever programs read when they start:
             /etc, /usr, /lib, files in /, dotfiles, directories of PATH, installed packages

A clean room has the image and every change that is not `system`. Does not read files.
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
    """Before the agent began: by its set-up, or when the environment was prepared."""
    AGENT = "agent"
    VERIFICATION = "verification"


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path that differs from the image: a line of changes.jsonl."""

    path: str
    """Absolute path inside. Untrusted."""
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
    """Of a regular file that was read."""
    target: str = ""
    """Target of a link."""
    end: str = ""
    """Where a link finally leads, for tests that follow it; empty if nothing is there or it depends
    on the process that follows it.
    """
    xattrs: dict[str, str] = {}
    in_image: bool = False
    """Whether the image has something at that path."""
    is_installed: bool = False
    """Whether it is as a Debian package installed it, by dpkg's records, which the agent can write.
    """
    mark: str = ""
    """Differs whenever the path was written again; not stored."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Paths by which programs find their files in an environment."""

    workdir: str
    """The image's working directory, links resolved."""
    search_path: tuple[str, ...] = ()
    """Directories of PATH and LD_LIBRARY_PATH."""
    python_path: tuple[str, ...] = ()
    """Directories of PYTHONPATH."""
    shadowing: tuple[str, ...] = ()
    """Names written into directories of PATH that are also programs of the image, there or
    elsewhere.
    """
    provided: Container[str] = frozenset()
    """What the image has in search directories, such as bin/grep and python/yaml."""
    environments: tuple[str, ...] = ()
    """Settings of the image's Python environments in the working directory."""
    test_settings: tuple[str, ...] = ()
    """Files in or above the working directory that configure test programs, and did not in the
    image.
    """
    homes: tuple[str, ...] = ("/root",)
    """Home directories named by the passwd of the image and by that of the agent."""


@dataclass(kw_only=True)
class ChangeAccount:
    """What is known so far about the changes in an environment."""

    around: Surroundings = field(default_factory=lambda: Surroundings(workdir="/"))
    """As of when the agent's changes were recorded."""
    marks: dict[str, str] = field(default_factory=dict)
    """Marks of the paths that were written before the agent began."""
    before: list[Change] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    late: list[Change] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    """Files of the agent that the tests may load implicitly."""
    unasked: list[str] = field(default_factory=list)
    """Other work of the agent that a clean room leaves out."""
    merged: list[str] = field(default_factory=list)
    """Directories that replaced the image's; a clean room has the contents of both."""
    restored: set[str] = field(default_factory=set)
    """Tools that were restored before the tests, which are not changes by the tests."""
    is_cut: bool = False
    """Whether the list was cut short."""
    is_noted: bool = False
    """Whether the agent's changes were recorded."""

    @property
    def system(self) -> list[Change]:
        """The agent's changes to the system."""
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
# A path here that the instruction names is the agent's work only if the image does not have it.
_PROGRAMS = re.compile(r"/(usr|bin|sbin|lib[^/]*|boot)(/|$)")
# Directories too general to identify a task's files when an instruction names them.
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
# Package directories, from which programs load files; those of the image belong to the system.
_PACKAGES = re.compile(r"/(site-packages|dist-packages|node_modules)(/|$)")
# Below /usr: where programs look for programs, modules and headers.
_SEARCHED = re.compile(r"/(lib[^/]*|include|s?bin|libexec|share/perl[^/]*)/")
# Test runners: an instruction that mentions one does not ask for it to be installed.
_TEST_PROGRAMS = re.compile(
    r"(python|pip|pypy)[\d.]*|py\.?test|uvx?|node|npm|npx|perl|ruby|make|gcc|cc|tox|nox"
)
_NAMED = re.compile(r"(?<![\w/.:@~$}])(~?/[\w.+@~-]+(?:/[\w.+@~-]+)*)")
# Files that common test commands load implicitly from where they are started.
_TEST_SETTINGS = frozenset(
    {
        *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini"),
        *("Makefile", "makefile", "GNUmakefile", ".env", ".envrc", ".coveragerc", ".pdbrc"),
        *(".npmrc", ".yarnrc", ".babelrc", ".mocharc.js", ".mocharc.json", "jest.config.js"),
        *(".python-version", ".tool-versions", ".nvmrc", ".gdbinit", ".lldbinit", ".valgrindrc"),
        *(".sqliterc", ".curlrc", ".wgetrc", ".netrc", ".inputrc", ".rspec", ".gitattributes"),
    }
)
_LOADED_BY_PYTHON = frozenset({"sitecustomize", "usercustomize"})
_TEST_MODULES = frozenset({"pytest", "_pytest", "pluggy", "iniconfig", "_virtualenv"})
_MODULES = sys.stdlib_module_names | _TEST_MODULES | _LOADED_BY_PYTHON


def find_named(text: str, homes: Sequence[str] = ("/root",)) -> frozenset[str]:
    """Return the absolute paths that an instruction names, except those that are too general."""
    found = set()
    for match in _NAMED.finditer(text):
        path = match[1].rstrip("./")
        ways = [f"{home}{path[1:]}" for home in homes] if path.startswith("~") else [path]
        found |= {posixpath.normpath(way) for way in ways if way}
    return frozenset(path for path in found if path not in _WIDE and path.startswith("/"))


@dataclass(frozen=True)
class Classifier:
    """Decides which part of an environment a changed path belongs to."""

    around: Surroundings
    named: Collection[str] = ()
    """Paths that the instruction names or the task declares as artifacts."""
    made: Collection[str] = field(default_factory=frozenset)
    """Directories created since the image."""
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
        """Named directories, except homes: programs read the dotfiles of a named home too."""
        return _below(place for place in self.named if place not in self._homes)

    @cached_property
    def _in_search(self) -> tuple[str, ...]:
        """Directories in which programs are searched for, except those the agent created."""
        own = {self._workdir, *self.made}
        return _below(place for place in self.around.search_path if place not in own)

    def classify(self, change: Change) -> Place:
        """Return the part that a change belongs to."""
        path = change.path
        way = f"{path}/"
        is_work = self._is_named(change, way) or self._is_asked_for(change)
        if is_work or way.startswith(_OURS):
            return Place.WORK
        found = _PACKAGES.search(path)
        in_packages = found is not None and path[: found.end(1)] not in self.made
        if in_packages or way.startswith(self._in_search) or path in self.around.environments:
            return Place.SYSTEM
        is_in_home = way.startswith(self._in_homes)
        # A home replaced by a link or another directory moves everything that programs read in it.
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
        # Naming an existing directory names a place; only a path named itself, or a new one, is
        # work.
        is_own = change.path in self.named or any(
            way.startswith(one) for one in self._in_named if one[:-1] in self.made
        )
        return not change.in_image and (is_own or not _SEARCHED.search(way))


def find_test_imports(
    changes: Iterable[Change], around: Surroundings, made: Collection[str], text: str = ""
) -> list[str]:
    """Return files that a test command started in the working directory would load implicitly.

    These are settings in directories the agent did not create, git hooks, and modules that shadow
    Python's library or pytest. Files that the instruction `text` mentions are excluded: the task
    asks for them.
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
    """Whether a text contains a name as a separate word."""
    # The substring check comes first: compiling a pattern for each of many names is slow.
    return name in text and re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text) is not None


def _is_module(change: Change, name: str) -> bool:
    if name.endswith(".pth"):
        return True
    is_file = change.kind == "file" and name.endswith((".py", ".pyc", ".so"))
    return name.partition(".")[0] in _MODULES and (is_file or change.kind in ("directory", "link"))


class LeftOut(msgspec.Struct, frozen=True):
    """What a clean room leaves out of the agent's changes."""

    paths: frozenset[str]
    """Paths, each with everything below."""
    plain: frozenset[str]
    """Directories created only because kept files lie below them."""


def leave_out(
    changes: Sequence[Change], imports: Collection[str], merged: Collection[str] = ()
) -> LeftOut:
    """Return what a clean room leaves out: system changes, and what tests would load implicitly.

    Directories in `merged` also have their contents from the image there.
    """
    out = {each.path for each in changes if each.place is Place.SYSTEM} | set(imports)
    kept = [each.path for each in changes if each.path not in out and each.how != "deleted"]
    needed = {way for path in kept for way in _ways_to(path)}
    plain = {
        each.path
        for each in changes
        if each.kind == "directory" and each.path in out and each.path in needed
        # One that replaced a link or file of the image would hide it.
        if each.how in ("created", "changed")
    }
    return LeftOut(frozenset(out - plain), frozenset({*plain, *merged} - (out - plain)))


def _ways_to(path: str) -> Iterable[str]:
    parent = posixpath.dirname(path)
    while parent != "/":
        yield parent
        parent = posixpath.dirname(parent)


def _below(places: Iterable[str]) -> tuple[str, ...]:
    """The directories with a trailing slash, for startswith."""
    return tuple(f"{place.rstrip('/')}/" for place in places)
