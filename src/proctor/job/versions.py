"""Which version of a dataset is the newest: head, else the highest by PEP 440, else by the text."""

import re
from collections.abc import Iterable

_VERSION = re.compile(
    r"""\s* v? (?:(?P<epoch>\d+)!)? (?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<pre>alpha|beta|preview|pre|a|b|c|rc)[-_.]?(?P<pre_n>\d*))?
    (?:-(?P<post_bare>\d+)|(?P<post>[-_.]?(?:post|rev|r)[-_.]?(?P<post_n>\d*)))?
    (?P<dev>[-_.]?dev[-_.]?(?P<dev_n>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))? \s*""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_STAGES = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}

type VersionKey = tuple[int, tuple[int, ...], tuple[int, int], int, float, tuple[object, ...]]


def newest_version(versions: Iterable[str]) -> str:
    """The version that is meant where none is named.

    Raises:
        ValueError: there is none.
    """
    named = list(versions)
    if not named:
        raise ValueError("no versions")
    if "head" in named:
        return "head"
    ranked = [(key, name) for name in named if (key := parse_version(name)) is not None]
    if not ranked:
        return max(named)
    return max(ranked, key=lambda pair: pair[0])[1]


def parse_version(text: str) -> VersionKey | None:
    """A key that sorts as PEP 440 sorts versions; None for what is no version."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    release = tuple(int(part) for part in found["release"].split("."))
    while len(release) > 1 and release[-1] == 0:
        release = release[:-1]
    post = found["post_bare"] or found["post_n"] or (0 if found["post"] else None)
    dev = float(found["dev_n"] or 0) if found["dev"] else float("inf")
    return (
        int(found["epoch"] or 0),
        release,
        _stage(found, is_dev_alone=post is None and bool(found["dev"])),
        -1 if post is None else int(post),
        dev,
        _local(found["local"]),
    )


def _stage(found: re.Match[str], *, is_dev_alone: bool) -> tuple[int, int]:
    """Alpha before beta before candidate before release; a bare .dev comes before them all."""
    if found["pre"]:
        return _STAGES[found["pre"].lower()], int(found["pre_n"] or 0)
    return (-1, 0) if is_dev_alone else (len(_STAGES), 0)


def _local(text: str | None) -> tuple[object, ...]:
    """None before any; of parts, text before numbers."""
    parts = re.split(r"[-_.]", text.lower()) if text else []
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)
