"""Names of what an image has where programs search: programs, modules, headers, libraries.

    bin/grep   python/yaml   include/assert.h   lib/libm   perl/Test/More.pm   node/lodash

An image does not change, so that it is looked at once.
"""

import posixpath
from collections.abc import Iterator, Sequence
from functools import lru_cache

from proctor.environments.sandbox.changes import LayeredChanges

_PREFIXES = ("/usr", "/usr/local", "")
_PYTHON = ("", "/site-packages", "/dist-packages")
_NODE = ("/usr/lib/node_modules", "/usr/local/lib/node_modules", "/usr/share/nodejs")
_PERL = ("/usr/share/perl5", "/usr/local/share/perl5", "/etc/perl")


@lru_cache(maxsize=8)
def find_provided(
    image: LayeredChanges, search_path: tuple[str, ...], node_path: tuple[str, ...]
) -> frozenset[str]:
    """Each name with the kind of place in front of it."""
    return frozenset(
        [
            *(f"bin/{name}" for place in search_path for name in image.list_in_image(place)),
            *(f"python/{name}" for name in _find_modules(image, search_path)),
            *_find_headers(image),
            *(f"lib/{name}" for name in _find_libraries(image)),
            *_find_perl(image),
            *(
                f"node/{name}"
                for place in (*_NODE, *node_path)
                for name in image.list_in_image(place)
            ),
        ]
    )


def _find_modules(image: LayeredChanges, search_path: Sequence[str]) -> Iterator[str]:
    """Top-level modules of every Python that the image has beside its programs."""
    prefixes = dict.fromkeys((*_PREFIXES[:2], *map(posixpath.dirname, search_path)))
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


def _find_headers(image: LayeredChanges) -> Iterator[str]:
    for prefix in _PREFIXES[:2]:
        for place in _list_multiarch(image, f"{prefix}/include"):
            for name in image.list_in_image(place):
                yield f"include/{name}"
                if "." not in name:
                    yield from (
                        f"include/{name}/{one}" for one in image.list_in_image(f"{place}/{name}")
                    )


def _find_libraries(image: LayeredChanges) -> Iterator[str]:
    for prefix in _PREFIXES:
        for place in _list_multiarch(image, f"{prefix}/lib"):
            for name in image.list_in_image(place):
                if ".so" in name or name.endswith(".a"):
                    yield name.partition(".")[0]


def _find_perl(image: LayeredChanges) -> Iterator[str]:
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
            yield f"perl/{name}"
            if "." not in name:
                yield from (f"perl/{name}/{one}" for one in image.list_in_image(f"{place}/{name}"))
