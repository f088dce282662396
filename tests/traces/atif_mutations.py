"""ATIF documents with one thing wrong, or changed and not wrong: every field, in every way."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data" / "atif"
FREE = ("extra", "arguments", "tool_definitions")
"""Objects in which anything goes: what is inside them is not changed."""
VALUES: tuple[Any, ...] = (
    *(None, "", "x", "1", " 2 ", "1.0", "1e3", "nan", "yes", "agent", "user", "2026-01-01"),
    *(0, 1, 2, -1, 10**30, 10**400, 0.0, 1.0, 1.5, -2.5, True, False),
    *([], [1], ["1"], ["x"], [None], [{}], {}, {"a": 1}, {"results": []}, {"type": "text"}),
)

type Path_ = tuple[str | int, ...]


def every_field() -> Any:
    """A document that uses every field of v1.7."""
    return json.loads((DATA / "every-field.json").read_bytes())


def paths_of(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The path of every value of a document but the document itself."""
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for key, member in members:
        yield (*path, key)
        if key not in FREE:
            yield from paths_of(member, (*path, key))


def copy_of(value: Any) -> Any:
    """A copy of a document or a part of it, several times as fast as a deep copy."""
    return json.loads(json.dumps(value))


def changed(document: Any, path: Path_, value: Any) -> Any:
    """A copy of a document with another value at a path."""
    copied = copy_of(document)
    _at(copied, path[:-1])[path[-1]] = value
    return copied


def mutations_of(document: Any) -> Iterator[Any]:
    """The document with each value dropped, doubled in a list, renamed, and of every other type."""
    for path in paths_of(document):
        for value in VALUES:
            yield changed(document, path, value)
        copied = copy_of(document)
        parent = _at(copied, path[:-1])
        if isinstance(parent, list):
            parent.insert(int(path[-1]), copy_of(parent[int(path[-1])]))
            yield copied
        else:
            renamed = copy_of(document)
            inner = _at(renamed, path[:-1])
            inner["x_" + str(path[-1])] = inner.pop(path[-1])
            yield renamed
        dropped = copy_of(document)
        del _at(dropped, path[:-1])[path[-1]]
        yield dropped
        yield from _transplants(document, path)


def _transplants(document: Any, path: Path_) -> Iterator[Any]:
    """A list's objects, each with one field of another of them that it lacks."""
    objects = [each for each in _list_at(document, path) if isinstance(each, dict)]
    for index, taker in enumerate(objects):
        for giver in objects:
            for key in giver.keys() - taker.keys():
                yield changed(document, (*path, index, key), giver[key])


def _list_at(document: Any, path: Path_) -> list[Any]:
    value = _at(document, path)
    return value if isinstance(value, list) else []


def _at(document: Any, path: Path_) -> Any:
    for key in path:
        document = document[key]
    return document
