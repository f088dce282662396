"""Names of what an image has where programs search: programs, modules, headers, libraries.

    bin/grep   python/yaml   include/assert.h   lib/libm   perl/Test/More.pm   node/lodash

An image does not change, so that it is looked at once.
"""

import posixpath
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from functools import lru_cache

from proctor.environments.sandbox.blueprint import Part
from proctor.environments.sandbox.changes import LayeredChanges

_PREFIXES = ("/usr", "/usr/local", "")
_PYTHON = ("", "/site-packages", "/dist-packages")
_NODE = ("/usr/lib/node_modules", "/usr/local/lib/node_modules", "/usr/share/nodejs")
_PERL = ("/usr/share/perl5", "/usr/local/share/perl5", "/etc/perl")


@dataclass(frozen=True)
class Provided(Container[str]):
    """The names, each with the kind of place in front of it; a kind is looked at when asked for."""

    image: LayeredChanges
    search_path: tuple[str, ...]
    node_path: tuple[str, ...]

    def __contains__(self, name: object) -> bool:
        """Whether the image has something of that name."""
        kind = str(name).partition("/")[0]
        return kind in _KINDS and name in _find_names(self, kind)


def find_provided(
    changes: LayeredChanges, search_path: tuple[str, ...], node_path: tuple[str, ...]
) -> Provided:
    """What an image has."""
    # Without what is one sandbox's own.
    parts = tuple(Part(part.target, part.lowers, upper="", work="") for part in changes.parts)
    return Provided(LayeredChanges(parts), search_path, node_path)


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
    """Top-level modules of every Python that the image has beside its programs."""
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
    """A directory, and those of each architecture in it: x86_64-linux-gnu."""
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
