"""Find files of the agent's work that nobody asked for but the tests would pick up.

The work is what the task asks for. Tests and the programs they call also pick up other files: by
the name of something in the image, as settings of the directory they start in, or as state of an
earlier run. A clean room leaves these out, so a reward that depends on one is lower there:

    links        those that are broken when the agent ends, or depend on the process that follows
                 them: the tests create their targets
    namesakes    new modules, programs, headers and libraries with the name of one in the image
    settings     of the directory where tests start, unless the instruction mentions them
    tests        the project's own, unless the instruction asks for tests
    state        compiled Python, settings of a repository, temporary directories
    inputs       changed or deleted data of the image in the working directory, unless the
                 instruction mentions it

Does not read files.
"""

import posixpath
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from proctor.trial.changes import Change, Place, Surroundings, find_named, is_mentioned

_TEMPORARY = ("/tmp/", "/var/tmp/", "/var/cache/", "/run/", "/var/run/", "/dev/")  # noqa: S108 - of the environment
# The tests see other files here than the agent did.
_VERIFIERS = ("/tests/", "/logs/", "/solution/")
_PACKAGES = re.compile(r"/(site-packages|dist-packages)(/|$)")
_MODULE_FILES = (".py", ".pyc", ".so")
_LOADED_BY_PYTHON = frozenset({"sitecustomize", "usercustomize"})
_MODULES = sys.stdlib_module_names | _LOADED_BY_PYTHON
_PACKAGE_FILES = ("__init__.py", "__init__.pyc")
_OF_VIRTUAL_ENVIRONMENTS = re.compile(r"(python|pip)[\d.]*")
_SETTINGS_OF_PYTEST = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini"}
)
_SETTINGS = re.compile(
    r"CTestCustom\.cmake|CTestCustom\.ctest|CMake(User)?Presets\.json|\w+\.mk|GNUmakefile|makefile"
    r"|[Mm]akefile\..+|.+\.(local|override)(\..+)?"
)
_METADATA = re.compile(r"[^/]+\.(egg-info|dist-info)")
_ORDINARY_HIDDEN = frozenset({".git", ".gitignore", ".gitkeep", ".gitmodules", ".venv", ".github"})
_OF_A_REPOSITORY = re.compile(
    r"(?P<place>.*/\.git)/(config|config\.worktree|info/.+|hooks/.+|refs/replace/.+)"
)
_ABOUT_REPOSITORIES = re.compile(
    r"\b(config\w*|remotes?|upstream|submodules?|clon(e|ed|ing)|push\w*|fetch\w*|pull\w*|hooks?"
    r"|worktrees?|lfs|sparse\S*|git\s+replace|excludes?)\b",
    re.IGNORECASE,
)
_TEST_PLACES = re.compile(r"/(tests?|__tests__|specs?|fixtures|testdata)(/|$)")
_TEST_FILES = re.compile(r"(run[_-]?)?tests?([_.-].*)?|.*[_.-](tests?|spec)\.\w+", re.IGNORECASE)
_ASKING_FOR_TESTS = re.compile(
    r"\b(write|writing|add|adding|edit|update|modify|extend|fix|create|complete|implement|generate"
    r"|repair|rewrite|port)\b(\W+\w+){0,3}\W+(\w*tests?|test\s+\w+|fixtures|specs?)\b",
    re.IGNORECASE,
)
_ABOUT_DELETIONS = re.compile(
    r"\b(delet|remov|renam|mov(e|ing)|clean|purg|prun|eras|wip(e|ing)|drop|discard|uninstall"
    r"|replac|sanitiz|sanitis|redact|scrub|strip|extract|unpack|convert|migrat|merg|rewrit|split"
    r"|reorgani|restor|recover|refactor|consolidat|archiv|compress|encrypt|decrypt|get rid|rid of"
    r"|must not|should not|no longer|only|truncat|overwrit|revert|reset|rebuild|reshard|squash)",
    re.IGNORECASE,
)
_ABOUT_CHANGES = re.compile(
    rf"{_ABOUT_DELETIONS.pattern}|\b(fix|edit|modif|updat|append|add|repair|correct|sort|fill|transform"
    r"|in.place|label|annotat|encod|patch|insert|mutat|normali|dedup|deduplicat|chang|improv|extend"
    r"|put|stor(e|ing)|save|record|tag|mark|turn|increment|decrement|enter|populat|train|tun(e|ing)"
    r"|configur|complet|implement|generat|translat|optimi|set\b|make sure|ensure|bump|introduc)",
    re.IGNORECASE,
)
_DATA = re.compile(
    r".*\.(csv|tsv|jsonl|parquet|npy|npz|dat|data|pcap|png|jpe?g|gif|wav|mp3|mp4|pdf|fasta|fa|pdb)",
    re.IGNORECASE,
)
# Phrases by which an instruction describes a file that is to be written.
_AS_OUTPUT = (
    r"\b((to|into|in|at|as|named|called)\b[\s`'\"(]*[\w./~-]*"
    r"|(write|create|produce|output|export|dump)\b[^\n]{{0,120}}\W){}"
)
_MENTIONED_DATA = re.compile(r".*\.(json|txt|xml|ya?ml|html?|log)", re.IGNORECASE)
_ABOUT_PIPES = re.compile(r"\b(fifos?|pipes?|sockets?|devices?)\b", re.IGNORECASE)
# Files that programs routinely delete.
_PASSING = re.compile(r".*(-wal|-shm|-journal|\.lock|\.pid|\.sock|\.swp|\.log|\.o|\.pyc|~)")


def find_unasked(
    changes: Sequence[Change], around: Surroundings, made: Collection[str], text: str
) -> list[str]:
    """Return paths, each with everything below, that a clean room leaves out.

    `made` are the directories the agent created, and `text` is the instruction.
    """
    kept = [each for each in changes if each.place is not Place.SYSTEM]
    look = _Look(kept, around, made, text)
    found = {each.path for each in kept if look.is_unasked(each)}
    found |= set(_find_loose_links(changes, found))
    return [each.path for each in kept if any(way in found for way in _ways_to(each.path))]


def find_merged(changes: Iterable[Change], around: Surroundings, text: str) -> list[str]:
    """Return directories that replaced the image's without the instruction asking for it.

    A clean room has both the image's and the agent's contents in them.
    """
    in_workdir = f"{around.workdir.rstrip('/')}/"
    return [
        each.path
        for each in changes
        if each.kind == "directory" and each.how == "replaced" and each.place is not Place.SYSTEM
        if each.path.startswith(in_workdir) and not _ABOUT_DELETIONS.search(text)
    ]


def find_overwritten_links(changes: Iterable[Change], late: Iterable[Change]) -> list[str]:
    """Return the agent's links to files that the tests wrote: the agent did not supply them."""
    written = {each.path for each in late if each.kind != "directory" and each.how != "deleted"}
    return [each.path for each in changes if each.kind == "link" and each.end in written]


def _find_loose_links(changes: Sequence[Change], unasked: Collection[str]) -> Iterator[str]:
    """Links in the work to files that a clean room lacks."""
    missing = {each.path for each in changes if each.place is Place.SYSTEM and not each.in_image}
    missing |= set(unasked)
    for change in changes:
        if change.kind == "link" and change.place is not Place.SYSTEM and change.how != "deleted":
            ways = _ways_to(change.end)
            if not change.end or any(way in missing for way in ways):
                yield change.path


def _ways_to(path: str) -> Iterator[str]:
    while len(path) > 1:
        yield path
        path = posixpath.dirname(path)


@dataclass(frozen=True)
class _Look:
    kept: Sequence[Change]
    around: Surroundings
    made: Collection[str]
    text: str

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(each.path for each in self.kept if each.how != "deleted")

    @cached_property
    def _in_workdir(self) -> str:
        return f"{self.around.workdir.rstrip('/')}/"

    @cached_property
    def _named(self) -> tuple[str, ...]:
        """Paths that the instruction names, except the working directory and those above it."""
        named = find_named(self.text, self.around.homes)
        return tuple(f"{one}/" for one in named if not self._in_workdir.startswith(f"{one}/"))

    @cached_property
    def _asks_for_tests(self) -> bool:
        return _ASKING_FOR_TESTS.search(self.text) is not None

    @cached_property
    def _speaks_of_deletions(self) -> bool:
        return _ABOUT_DELETIONS.search(self.text) is not None

    @cached_property
    def _speaks_of_repositories(self) -> bool:
        return _ABOUT_REPOSITORIES.search(self.text) is not None

    def is_unasked(self, change: Change) -> bool:
        path = change.path
        if f"{path}/".startswith(_VERIFIERS):
            return False
        found = _OF_A_REPOSITORY.fullmatch(path)
        if (
            found is not None
            and found["place"] not in self.made
            and not path.endswith(".sample")
            and not self._speaks_of_repositories
        ):
            return True
        if "/.git/" in path:
            return False
        if change.how == "deleted" or (change.how == "replaced" and change.kind != "directory"):
            is_gone = (
                change.in_image
                and change.path.startswith(self._in_workdir)
                and not self._speaks_of_deletions
                and not _PASSING.fullmatch(change.path)
            ) or self._is_test(change)
            if is_gone or change.how == "deleted":
                return is_gone
        return (
            self._is_passing(change)
            or self._is_namesake(change)
            or self._is_setting(change)
            or self._is_test(change)
            or (
                change.in_image
                and change.kind != "directory"
                and change.path.startswith(self._in_workdir)
                and self._is_data(change.path)
                and not _ABOUT_CHANGES.search(self.text)
            )
        )

    def _is_passing(self, change: Change) -> bool:
        """Whether programs recreate it: compiled Python, pipes, and temporary files."""
        path, name = change.path, posixpath.basename(change.path)
        if change.kind not in ("file", "directory", "link"):
            return not is_mentioned(name, self.text) or not _ABOUT_PIPES.search(self.text)
        if "/__pycache__/" in f"{path}/":
            return not change.in_image or change.kind != "directory"
        is_temporary = path.startswith(_TEMPORARY) and not path.startswith(self._in_workdir)
        is_asked = f"{path}/".startswith(self._named) or is_mentioned(name, self.text)
        holds_named = any(one.startswith(f"{path}/") for one in self._named)
        return is_temporary and not is_asked and not holds_named

    def _is_namesake(self, change: Change) -> bool:
        """Whether the image has something of that name in a directory that programs search."""
        if change.in_image:
            return False
        directory, _, name = change.path.rpartition("/")
        if self._is_module(change, directory, name):
            # A word such as "json" occurs in many instructions; a file name does not.
            asked = f"{name}/" if change.kind == "directory" else name
            return not is_mentioned(asked, self.text)
        if f"{change.path}/".startswith(self._named) or is_mentioned(name, self.text):
            return False
        return any(one in self.around.provided for one in self._names_of(change))

    def _is_module(self, change: Change, directory: str, name: str) -> bool:
        if change.kind == "directory":
            packages = (f"{change.path}/{one}" for one in _PACKAGE_FILES)
            if not any(one in self._paths for one in packages):
                return False
        elif not name.endswith(_MODULE_FILES) and (change.kind != "link" or "." in name):
            return False
        module = name.partition(".")[0]
        if module not in _MODULES and f"python/{module}" not in self.around.provided:
            return False
        is_in_package = directory in self.made and f"{directory}/__init__.py" in self._paths
        return not is_in_package and not _PACKAGES.search(change.path)

    def _names_of(self, change: Change) -> Iterator[str]:
        """Its name relative to each of the image's search directories."""
        directory, _, name = change.path.rpartition("/")
        above = posixpath.basename(directory)
        is_executable = change.kind == "link" or int(change.mode or "0", 8) & 0o111
        if change.kind != "directory" and is_executable and not self._is_of_venv(directory, name):
            yield f"bin/{name}"
        if ".so" in name or name.endswith(".a"):
            yield f"lib/{name.partition('.')[0]}"
        elif name.endswith((".h", ".hpp")):
            yield from (f"include/{name}", f"include/{above}/{name}")
        elif name.endswith(".pm"):
            yield from (f"perl/{name}", f"perl/{above}/{name}")
        if above == "node_modules":
            yield f"node/{name}"

    def _is_of_venv(self, directory: str, name: str) -> bool:
        settings = f"{posixpath.dirname(directory)}/pyvenv.cfg"
        return settings in self._paths and _OF_VIRTUAL_ENVIRONMENTS.fullmatch(name) is not None

    def _is_setting(self, change: Change) -> bool:
        directory, _, name = change.path.rpartition("/")
        if is_mentioned(name, self.text) or directory.startswith("/proc"):
            return False
        if name in _SETTINGS_OF_PYTEST or change.path in self.around.test_settings:
            return True
        if change.in_image or change.place is Place.HOME:
            return False
        if _SETTINGS.fullmatch(name) or _METADATA.fullmatch(name):
            return not _PACKAGES.search(directory)
        is_hidden = name.startswith(".") and name not in _ORDINARY_HIDDEN
        return is_hidden and directory not in self.made and not self._is_in_named(change.path)

    def _is_in_named(self, path: str) -> bool:
        return f"{path}/".startswith(self._named)

    def _is_test(self, change: Change) -> bool:
        """Whether it is one of the project's tests, or lies next to them."""
        path = change.path
        if self._asks_for_tests or not path.startswith(self._in_workdir) or self._is_in_named(path):
            return False
        rest, name = path[len(self._in_workdir) - 1 :], posixpath.basename(path)
        found = _TEST_PLACES.search(rest)
        if found and f"{found[1]}/" not in self.text:
            return not is_mentioned(name, self.text) or change.in_image
        return change.in_image and _TEST_FILES.fullmatch(name) is not None

    def _is_data(self, path: str) -> bool:
        name = posixpath.basename(path)
        if re.search(_AS_OUTPUT.format(re.escape(name)), self.text, re.IGNORECASE):
            return False
        is_text = is_mentioned(name, self.text) and _MENTIONED_DATA.fullmatch(path) is not None
        return is_text or _DATA.fullmatch(path) is not None
