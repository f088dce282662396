"""Base class of the tables of task.toml, and detection of keys that are not read.

harbor silently ignores unknown keys, and so do these models. `find_unread_keys` lists them, because
most are typing mistakes. The others are keys that harbor has added since 0.13.1.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import ClassVar, get_args

import msgspec
from pydantic import BaseModel, ConfigDict

# Longer keys are not typing mistakes, and fuzzy matching them is slow.
_LONGEST_SLIP = 64


class LaterKey(msgspec.Struct, frozen=True):
    """A key of harbor 0.25 that is not read."""

    effect: str | None
    """What a run without it would do; None: nothing else, because the key is only for people."""
    same: tuple[object, ...] = ()
    """Values that mean the same as no value."""

    def changes(self, value: object) -> bool:
        """Whether a run that ignores this value is another run."""
        return self.effect is not None and value not in (None, [], {}, *self.same)


class Table(BaseModel):
    """One table of task.toml: frozen, unknown keys ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    other_spellings: ClassVar[Mapping[str, str]] = {}
    """Accepted aliases, each with the field that it sets."""
    later_keys: ClassVar[Mapping[str, LaterKey]] = {}
    """Keys that harbor has added since 0.13.1, up to 0.25.0, and these models do not have."""


class UnreadKey(msgspec.Struct, frozen=True):
    """A key of task.toml that is not read."""

    path: str
    """Its dotted path."""
    meant: str | None = None
    """The key that was probably meant."""
    effect: str | None = None
    """For a key of harbor 0.25: what a run without it would do."""


def find_unread_keys(
    table: type[Table], data: Mapping[str, object], prefix: str = ""
) -> Iterator[UnreadKey]:
    """Yield every key that is not read, but not those of harbor 0.25 that change nothing."""
    for key, value in data.items():
        path = f"{prefix}{key}"
        field = table.model_fields.get(key)
        if later := table.later_keys.get(key):
            if later.changes(value):
                yield UnreadKey(path, effect=later.effect)
        elif field is None:
            if key not in table.other_spellings:
                yield UnreadKey(path, _find_meant(key, table))
        elif inner := _find_table(field.annotation):
            yield from _find_unread_below(inner, value, path)


def _find_unread_below(table: type[Table], value: object, path: str) -> Iterator[UnreadKey]:
    if isinstance(value, dict):
        yield from find_unread_keys(table, value, f"{path}.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield from find_unread_keys(table, item, f"{path}[{index}].")


def _find_table(annotation: object) -> type[Table] | None:
    """Find the table inside a field's type: alone, optional, or as an element."""
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    inner = (_find_table(argument) for argument in get_args(annotation))
    return next((found for found in inner if found), None)


def _find_meant(key: str, table: type[Table]) -> str | None:
    if len(key) > _LONGEST_SLIP:
        return None
    return next(iter(get_close_matches(key, table.model_fields, n=1, cutoff=0.8)), None)
