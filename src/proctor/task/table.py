"""Base class of the tables of task.toml, and detection of unknown keys.

harbor silently ignores unknown keys, and so do these models. `find_ignored_keys` lists them,
because most are typing mistakes.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import ClassVar, get_args

from pydantic import BaseModel, ConfigDict

# Longer keys are not typing mistakes, and fuzzy matching them is slow.
_LONGEST_SLIP = 64


class Table(BaseModel):
    """One table of task.toml: frozen, unknown keys ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    other_spellings: ClassVar[Mapping[str, str]] = {}
    """Accepted aliases, each with the field that it sets."""


def find_ignored_keys(
    table: type[Table], data: Mapping[str, object], prefix: str = ""
) -> Iterator[tuple[str, str | None]]:
    """Yield the dotted path of every ignored key, with the key that was probably meant."""
    for key, value in data.items():
        path = f"{prefix}{key}"
        field = table.model_fields.get(key)
        if field is None:
            if key not in table.other_spellings:
                yield path, _find_meant(key, table)
        elif inner := _find_table(field.annotation):
            yield from _find_ignored_below(inner, value, path)


def _find_ignored_below(
    table: type[Table], value: object, path: str
) -> Iterator[tuple[str, str | None]]:
    if isinstance(value, dict):
        yield from find_ignored_keys(table, value, f"{path}.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict):
                yield from find_ignored_keys(table, item, f"{path}[{index}].")


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
