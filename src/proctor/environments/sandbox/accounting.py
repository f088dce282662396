"""Lists everything that was written in a sandbox, and how programs find files there.

Also for containers whose layers are on this machine.
"""

import asyncio
import posixpath
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from proctor.environments.running import DEVICES, MEMORY
from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.changes import LayeredChanges
from proctor.environments.sandbox.command import PATH
from proctor.environments.sandbox.mapped import run_mapped
from proctor.environments.sandbox.walk import DELETED, Limits, Written
from proctor.environments.tools import Kind
from proctor.trial.changes import Change, Phase, Surroundings
from proctor.trial.environment import SeenFile

# Project settings that choose which tests run
#
# Found by content: most of these files contain harmless settings too, so their names say nothing.


_PYTEST = re.compile(r"^\s*\[tool[.:]pytest", re.MULTILINE)
_CHOOSING = re.compile(
    r"python_(files|functions|classes)|norecursedirs|collect_ignore|testpaths|"
    r"""addopts.{0,200}?(--co\b|--collect|-p\b|-k\b|-m\b|-h\b|-V\b|--ver|--help|--ignore|--desel|"""
    r"--setup|--fixtures|--markers|--cache|--noconf|--pyargs|--override|-o\b|-c\b|--rootdir|--lf)",
    re.DOTALL,
)
_FILES = ("pyproject.toml", "setup.cfg")
_PACKAGE = "package.json"


def find_test_settings(changes: LayeredChanges, workdir: str) -> Iterator[str]:
    """Yield changed files in or above a directory that choose which tests run."""
    place = workdir
    while place != "/":
        for name in changes.list_written(place):
            path = f"{place}/{name}"
            if (
                name in _FILES and _chooses(changes.read_now(path), changes.read_in_image(path))
            ) or (name == _PACKAGE and _changes_scripts(changes, path)):
                yield path
        place = posixpath.dirname(place)


def _chooses(now: str, before: str) -> bool:
    return now != before and bool(_PYTEST.search(now)) and bool(_CHOOSING.search(now))


def _changes_scripts(changes: LayeredChanges, path: str) -> bool:
    before = _load_scripts(changes.read_in_image(path))
    return bool(before) and before != _load_scripts(changes.read_now(path))


def _load_scripts(text: str) -> dict[str, object]:
    """Return the test commands of a package.json; empty if it is invalid."""
    try:
        found = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}
    scripts = found.get("scripts")
    commands = scripts if isinstance(scripts, dict) else {}
    return {name: text for name, text in commands.items() if "test" in str(name)}


# Names that an image provides to programs: programs, modules, headers, libraries
#
#     bin/grep   python/yaml   include/assert.h   lib/libm   perl/Test/More.pm   node/lodash
#
# Cached, because an image does not change.


_PREFIXES = ("/usr", "/usr/local", "")
_PYTHON = ("", "/site-packages", "/dist-packages")
_NODE = ("/usr/lib/node_modules", "/usr/local/lib/node_modules", "/usr/share/nodejs")
_PERL = ("/usr/share/perl5", "/usr/local/share/perl5", "/etc/perl")


@dataclass(frozen=True)
class Provided(Container[str]):
    """Names with their kind as a prefix; each kind is read on first use."""

    image: LayeredChanges
    search_path: tuple[str, ...]
    node_path: tuple[str, ...]

    def __contains__(self, name: object) -> bool:
        """Whether the image provides that name."""
        kind = str(name).partition("/")[0]
        return kind in _KINDS and name in _find_names(self, kind)


def find_image(changes: LayeredChanges) -> LayeredChanges:
    """Return the image without what was written on it, equal for all sandboxes on the image."""
    return LayeredChanges(
        tuple(Part(part.target, part.lowers, upper="", work="") for part in changes.parts)
    )


@lru_cache(maxsize=64)
def _find_names(provided: Provided, kind: str) -> frozenset[str]:
    return frozenset(f"{kind}/{name}" for name in _KINDS[kind](provided))


def _find_programs(provided: Provided) -> Iterator[str]:
    for place in provided.search_path:
        yield from provided.image.list_in_image(place)


def _find_node_modules(provided: Provided) -> Iterator[str]:
    for place in (*_NODE, *provided.node_path):
        yield from provided.image.list_in_image(place)


def _find_modules(provided: Provided) -> Iterator[str]:
    """Yield the top-level modules of every Python next to the image's programs."""
    image, places = provided.image, map(posixpath.dirname, provided.search_path)
    prefixes = dict.fromkeys((*_PREFIXES[:2], *places))
    for prefix in prefixes:
        for python in image.list_in_image(f"{prefix}/lib"):
            if not python.startswith("python"):
                continue
            for more in _PYTHON:
                for name in image.list_in_image(f"{prefix}/lib/{python}{more}"):
                    if "-" not in name.partition(".")[0]:
                        yield name.partition(".")[0]


def _list_multiarch(image: LayeredChanges, top: str) -> Iterator[str]:
    """Yield a directory and its subdirectories per architecture, such as x86_64-linux-gnu."""
    yield top
    yield from (f"{top}/{name}" for name in image.list_in_image(top) if "-linux-" in name)


def _find_headers(provided: Provided) -> Iterator[str]:
    image = provided.image
    for prefix in _PREFIXES[:2]:
        for place in _list_multiarch(image, f"{prefix}/include"):
            for name in image.list_in_image(place):
                yield name
                if "." not in name:
                    yield from (f"{name}/{one}" for one in image.list_in_image(f"{place}/{name}"))


def _find_libraries(provided: Provided) -> Iterator[str]:
    image = provided.image
    for prefix in _PREFIXES:
        for place in _list_multiarch(image, f"{prefix}/lib"):
            for name in image.list_in_image(place):
                if ".so" in name or name.endswith(".a"):
                    yield name.partition(".")[0]


def _find_perl(provided: Provided) -> Iterator[str]:
    image = provided.image
    core = (f"/usr/share/perl/{name}" for name in image.list_in_image("/usr/share/perl"))
    built = [
        f"{place}{more}"
        for place in _list_multiarch(image, "/usr/lib")
        for more in (
            "/perl-base",
            *(f"/perl/{name}" for name in image.list_in_image(f"{place}/perl")),
        )
    ]
    for place in (*_PERL, *core, *built):
        for name in image.list_in_image(place):
            yield name
            if "." not in name:
                yield from (f"{name}/{one}" for one in image.list_in_image(f"{place}/{name}"))


_KINDS: dict[str, Callable[[Provided], Iterator[str]]] = {
    "bin": _find_programs,
    "python": _find_modules,
    "include": _find_headers,
    "lib": _find_libraries,
    "perl": _find_perl,
    "node": _find_node_modules,
}


# Final targets of the agent's symlinks, as the tests will follow them


_MOST_LINKS = 40
# Symlinks that are followed; the targets of further ones count as unknown, like dangling links.
_MOST_FOLLOWED = 5000
_DEVICES = frozenset(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_SEEN_BY_EACH = frozenset({"/proc", "/sys", "/dev"})
# Directories whose content depends on the process or on the time.
_OTHERS = ("/proc/", "/sys/", "/dev/", "/tests/", "/logs/verifier/", "/solution/")


def find_ends(image: LayeredChanges, written: Iterable[Written]) -> dict[str, str]:
    """Return the final target of each symlink; empty if it dangles or has no fixed target."""
    now = {entry.path: entry for entry in written}
    links = [entry.path for entry in now.values() if entry.kind == "link" and entry.how != DELETED]
    return {path: _follow(image, now, path) for path in links[:_MOST_FOLLOWED]}


def _follow(image: LayeredChanges, now: Mapping[str, Written], path: str) -> str:
    rest, done, n_links = path.split("/")[1:], "", 0
    while rest:
        name = rest.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            done = posixpath.dirname(done).rstrip("/")
            continue
        here = f"{done}/{name}"
        if here in _SEEN_BY_EACH and rest:
            done = here
            continue
        target = _find_target(image, now, here)
        if target is None or f"{here}/".startswith(_OTHERS):
            return here if here in _DEVICES and not rest else ""
        if not target:
            done = here
            continue
        n_links += 1
        if n_links > _MOST_LINKS:
            return ""
        done = "" if target.startswith("/") else done
        rest = [*target.split("/"), *rest]
    return done or "/"


def _find_target(image: LayeredChanges, now: Mapping[str, Written], path: str) -> str | None:
    """Return the target of a symlink, empty for other files; None if nothing is there."""
    if (entry := now.get(path)) is not None:
        return None if entry.how == DELETED else entry.target
    found = image.find_kind_in_image(path)
    if found is None:
        return None
    return found.content if found.kind is Kind.LINK else ""


USERS = "/etc/passwd"
_MOST_HOMES = 100


async def list_changes(
    parts: Sequence[Part], known: Mapping[str, str], *, is_hashing: bool
) -> tuple[list[Change], bool]:
    """List what was written in overlays, and return whether the list was cut."""
    layers = [(part.target, part.upper, part.lowers) for part in parts]
    limits = Limits(is_hashing=is_hashing)
    # Files in memory are in no layer, and would count as deleted.
    on_disk = {path: mark for path, mark in known.items() if not path.startswith(f"{DEVICES}/")}
    written, is_cut = await run_mapped("walk", layers, on_disk, limits)
    if not written:
        return [], is_cut
    # In a thread too: an agent can leave links that take long to follow, and what packages
    # installed is read.
    return await asyncio.to_thread(_describe_all, parts, written, is_hashing=is_hashing), is_cut


def _describe_all(
    parts: Sequence[Part], written: Iterable[Sequence[Any]], *, is_hashing: bool
) -> list[Change]:
    entries = [Written(*each) for each in written]
    image = LayeredChanges(tuple(parts))
    ends = find_ends(image, entries)
    has_lists = is_hashing and image.dpkg.has_lists
    return [
        _change_of(
            each, ends.get(each.path, ""), is_installed=has_lists and _is_installed(image, each)
        )
        for each in entries
    ]


def _is_installed(image: LayeredChanges, entry: Written) -> bool:
    return (
        not entry.is_known
        and entry.how != DELETED
        and image.is_installed(entry.path, is_new=not entry.in_image)
    )


def _change_of(written: Written, end: str, *, is_installed: bool) -> Change:
    is_gone = written.how == "deleted"
    return Change(
        path=written.path,
        how=written.how,
        kind=written.kind,
        when=Phase.SETUP if written.is_known else Phase.AGENT,
        mode="" if is_gone else f"{written.mode:04o}",
        uid=None if is_gone else written.uid,
        gid=None if is_gone else written.gid,
        size=written.size if written.kind == "file" and not is_gone else None,
        sha256=written.sha256,
        target=written.target,
        end=end,
        xattrs=dict(written.xattrs),
        in_image=written.in_image,
        mark=written.mark,
        is_installed=is_installed,
    )


def changes_in_memory(files: Sequence[SeenFile], known: Mapping[str, str]) -> Iterator[Change]:
    """Yield changes of files in the memory file systems below /dev."""
    seen = {file.path for file in files}
    for path, mark in known.items():
        if mark and path.startswith(f"{DEVICES}/") and path not in seen:
            yield Change(path=path, how="deleted", kind="file")
    for file in files:
        if file.size is None and not file.path.startswith(f"{MEMORY}/"):
            # A device or symlink that every sandbox has.
            continue
        mark = f"{file.size}-{file.sha256}"
        yield Change(
            path=file.path,
            how="created",
            kind="file" if file.size is not None else "link",
            when=Phase.SETUP if known.get(file.path) == mark else Phase.AGENT,
            size=file.size,
            sha256=file.sha256 or "",
            mark=mark,
        )


def find_surroundings(
    changes: LayeredChanges, env: Mapping[str, str], workdir: str
) -> Surroundings:
    """Return how programs with these variables find their files."""
    image = find_image(changes)
    found = _look_at_image(image, workdir, tuple(_list_search_path(env)))
    around = surroundings_of([found.users, changes.read_now(USERS)], env, found.workdir)
    return msgspec.structs.replace(
        around,
        search_path=found.search_path,
        environments=found.environments,
        shadowing=tuple(_find_shadowing(changes, found.places)),
        provided=Provided(image, found.search_path, tuple(_split(env.get("NODE_PATH", "")))),
        test_settings=tuple(find_test_settings(changes, found.workdir)),
    )


class _Found(NamedTuple):
    """What an image has where programs look for files."""

    users: str
    """Text of its /etc/passwd."""
    workdir: str
    """The working directory, links resolved."""
    environments: tuple[str, ...]
    search_path: tuple[str, ...]
    """With the programs of the environments."""
    places: tuple[str, ...]
    """The search path, links resolved."""


@lru_cache(maxsize=64)
def _look_at_image(image: LayeredChanges, workdir: str, search_path: tuple[str, ...]) -> _Found:
    place = image.resolve(workdir)
    environments = tuple(_find_environments(image, place))
    programs = (f"{posixpath.dirname(one)}/bin" for one in environments)
    search = tuple(dict.fromkeys((*search_path, *programs)))
    places = tuple(dict.fromkeys(map(image.resolve, search)))
    return _Found(image.read_in_image(USERS), place, environments, search, places)


def _find_environments(changes: LayeredChanges, workdir: str) -> Iterator[str]:
    """Yield pyvenv.cfg of each Python environment that the image has in a directory."""
    if workdir == "/":
        return
    for name in changes.list_in_image(workdir):
        path = f"{workdir}/{name}/pyvenv.cfg"
        if changes.find_kind_in_image(path):
            yield path


def _find_shadowing(changes: LayeredChanges, places: Sequence[str]) -> Iterator[str]:
    written = {name for place in places for name in changes.list_written(place)}
    for name in sorted(written):
        if any(changes.find_in_image(f"{place}/{name}") for place in places):
            yield name


def surroundings_of(users: Iterable[str], env: Mapping[str, str], workdir: str) -> Surroundings:
    """Return the same without layers, from the texts of /etc/passwd and the working directory."""
    named = [home for text in users for home in _list_homes(text)]
    homes = dict.fromkeys(
        ("/root", posixpath.normpath(env.get("HOME", "/root")), *named[:_MOST_HOMES])
    )
    return Surroundings(
        workdir=workdir,
        search_path=tuple(_list_search_path(env)),
        python_path=tuple(_split(env.get("PYTHONPATH", ""))),
        homes=tuple(home for home in homes if home.startswith("/")),
    )


def _list_search_path(env: Mapping[str, str]) -> list[str]:
    return [*_split(env.get("PATH", PATH)), *_split(env.get("LD_LIBRARY_PATH", ""))]


def _split(value: str) -> list[str]:
    return [posixpath.normpath(place) for place in value.split(":") if place.startswith("/")]


def _list_homes(text: str) -> Iterator[str]:
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) > 5 and fields[5].startswith("/"):
            yield posixpath.normpath(fields[5])
