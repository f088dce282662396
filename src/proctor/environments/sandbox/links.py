"""Where the links that an agent made lead in the end, as the tests will follow them."""

import posixpath
from collections.abc import Iterable, Mapping

from proctor.environments.sandbox.changes import LayeredChanges
from proctor.environments.sandbox.walk import DELETED, Written
from proctor.environments.tools import Kind

_MOST_LINKS = 40
_MOST_FOLLOWED = 5000
"""Links that are followed; of more it is not known where they lead, and they are taken to lead
nowhere."""
_DEVICES = frozenset(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_SEEN_BY_EACH = frozenset({"/proc", "/sys", "/dev"})
_OTHERS = ("/proc/", "/sys/", "/dev/", "/tests/", "/logs/verifier/", "/solution/")
"""What is there depends on who looks, and when."""


def find_ends(image: LayeredChanges, written: Iterable[Written]) -> dict[str, str]:
    """Where each link leads, empty: nowhere, or to what is made when somebody looks."""
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
    """Where a path leads if it is a link, empty if it is something else; None: nothing is there."""
    if (entry := now.get(path)) is not None:
        return None if entry.how == DELETED else entry.target
    found = image.find_kind_in_image(path)
    if found is None:
        return None
    return found.content if found.kind is Kind.LINK else ""
