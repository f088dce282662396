"""Keys beyond the first generation: taken out on reading, put back as they were on writing.

The second writing of the first generation added optional keys (ADDED). They are accepted, kept and
never invented. Keys that no generation knows are kept likewise by a salvaging reader. What the
added objects hold inside is not judged, apart from the few rules that need no other file.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from proctor.diagnostic import Diagnostic
from proctor.errors import RecordError
from proctor.record.refusal import render_path

type Path = tuple[str | int, ...]
"""Keys and positions from the top of a document to one place in it."""

ADDED: Final[frozenset[Path]] = frozenset(
    {
        ("task", "visibility"),
        ("outputs", "artifacts"),
        ("outputs", "terminated"),
        ("outputs", "truncated"),
        ("outputs", "final_reason"),
        ("cost", "model_calls"),
        ("evaluation", "stewardship"),
        ("lifecycle_execution",),
        ("lifecycle_provenance",),
        ("world_execution",),
        ("world_provenance",),
        ("episode_artifact",),
        ("meta_harness_provenance",),
    }
)
"""What the later writing of the first generation may hold beyond it."""

_DIGEST = re.compile("[0-9a-f]{64}")


class Kept(msgspec.Struct, frozen=True):
    """One key that the record has no place for, with its value."""

    path: Path
    """Where it stood."""
    position: int
    """Which key of its object it was, counted from 0."""
    value: Any
    """As the file had it."""

    @property
    def is_known(self) -> bool:
        """Whether a generation of the format has this key."""
        return self.path in ADDED


def take_out(tree: dict[str, Any], paths: Sequence[Path]) -> tuple[Kept, ...]:
    """Remove keys from a document, and keep them."""
    places = [(path, _find_object(tree, path)) for path in paths]
    kept = [Kept(path, list(at).index(path[-1]), at[path[-1]]) for path, at in places if at]
    for item in kept:
        _find_object(tree, item.path).pop(item.path[-1])
    return tuple(kept)


def put_back(tree: dict[str, Any], kept: Sequence[Kept]) -> None:
    """Undo take_out in a document of the same shape.

    Raises:
        RecordError: the document has no such place.
    """
    for item in sorted(kept, key=lambda item: item.position):
        at = _find_object(tree, item.path)
        if not isinstance(at, dict):
            raise RecordError(f"{render_path(item.path)} has no place in the record any more")
        items = list(at.items())
        items.insert(item.position, (item.path[-1], item.value))
        at.clear()
        at.update(items)


def _find_object(tree: dict[str, Any], path: Path) -> Any:
    at: Any = tree
    for part in path[:-1]:
        if isinstance(at, dict):
            at = at.get(part)
        elif isinstance(at, list) and isinstance(part, int) and part < len(at):
            at = at[part]
        else:
            return None
    return at


def find_problems(kept: Sequence[Kept]) -> Iterator[Diagnostic]:
    """What breaks a rule of the added keys."""
    added = {item.path: item.value for item in kept if item.is_known}
    for path, allowed, expected in _SCALARS:
        if path in added and not allowed(added[path]):
            found = f"{render_path(path)} is {added[path]!r}; expected {expected}"
            yield Diagnostic("bad-addition", found)
    if added.get(("outputs", "terminated")) and added.get(("outputs", "truncated")):
        message = "outputs.terminated and outputs.truncated are both true; expected one at most"
        yield Diagnostic("bad-addition", message)
    yield from _find_halves(added)
    yield from _find_bad_artifacts(added)


def _find_halves(added: dict[Path, Any]) -> Iterator[Diagnostic]:
    first, second = ("lifecycle_execution",), ("lifecycle_provenance",)
    if (added.get(first) is None) != (added.get(second) is None):
        there, missing = (second, first) if added.get(first) is None else (first, second)
        message = f"{there[0]} is there without {missing[0]}; expected both or neither"
        yield Diagnostic("bad-addition", message)


def _find_bad_artifacts(added: dict[Path, Any]) -> Iterator[Diagnostic]:
    listed = added.get(("outputs", "artifacts")) or []
    single = added.get(("episode_artifact",))
    for artifact in [*(listed if isinstance(listed, list) else [listed]), single]:
        if artifact is not None and not _is_artifact(artifact):
            message = (
                f"an artifact is {str(artifact)[:80]}; "
                "expected kind, path, sha256 (64 lower-case hex digits) and media_type"
            )
            yield Diagnostic("bad-addition", message)


def _is_artifact(value: object) -> bool:
    if not isinstance(value, dict) or value.keys() != {"kind", "path", "sha256", "media_type"}:
        return False
    texts = list(value.values())
    return all(isinstance(text, str) for text in texts) and bool(_DIGEST.fullmatch(value["sha256"]))


def _is_count(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _is_reason(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(value.strip()))


_SCALARS = (
    (("task", "visibility"), (None, "public", "holdout").__contains__, "public, holdout or null"),
    (("outputs", "terminated"), lambda value: isinstance(value, bool), "true or false"),
    (("outputs", "truncated"), lambda value: isinstance(value, bool), "true or false"),
    (("outputs", "final_reason"), _is_reason, "text that is not blank, or null"),
    (("cost", "model_calls"), _is_count, "a whole number, 0 or more, or null"),
)
