"""The scalar types of the format, and the strictness that all parts of a record share.

Types are not coerced: "12" is not a number and true is not 1. A whole number is accepted for a
float. Times are read as aec-bench reads them (ISO 8601 with or without an offset, or an epoch
number) and kept as given; rules.py decides where an offset is required.
"""

import math
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

MAX_NESTING: Final = 100
"""Deepest free-form object. Readers of this format stop at 200, including the record's levels."""


class Part(BaseModel):
    """A part of a record: frozen, no unknown keys, no coercion, no nan and no infinity."""

    model_config = ConfigDict(
        defer_build=True,
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
    )


def _check_not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("expected text that is not blank")
    return text


def _check_offset(time: datetime) -> datetime:
    offset = time.utcoffset()
    if offset is not None and offset % timedelta(minutes=1):
        # It would be written truncated to the minute, which is another instant.
        raise ValueError("expected an offset from UTC in whole minutes")
    return time


_WHOLE = frozenset({int, bool})


def check_json(value: object, levels: int = MAX_NESTING) -> None:
    """Refuse what JSON cannot represent.

    Raises:
        ValueError: nan or infinity, invalid Unicode, a key that is not text, a value of another
            type, or nesting deeper than `levels` (which includes cycles).
    """
    # Level by level instead of recursively, so that depth cannot exhaust the stack.
    level: list[object] = [value]
    for _ in range(levels + 1):
        inner: list[object] = []
        for item in level:
            # Most of a record is plain text and whole numbers: a server checks thousands a second.
            if item is None or type(item) in _WHOLE or (type(item) is str and item.isascii()):
                continue
            if isinstance(item, dict):
                strange = [key for key in item if not isinstance(key, str)]
                if strange:
                    raise ValueError(f"has the key {strange[0]!r}; expected text")
                inner.extend(key for key in item if not key.isascii())
                inner.extend(item.values())
            elif isinstance(item, list | tuple):
                inner.extend(item)
            else:
                _check_scalar(item)
        if not inner:
            return
        level = inner
    raise ValueError(f"is nested more than {levels} levels deep")


def _check_scalar(item: object) -> None:
    if isinstance(item, str):
        try:
            item.encode()
        except UnicodeEncodeError:
            raise ValueError("has a lone surrogate, which is not valid text") from None
    elif isinstance(item, float):
        if not math.isfinite(item):
            raise ValueError(f"has {item}; expected a finite number")
    elif item is not None and not isinstance(item, int):
        raise ValueError(f"has a {type(item).__name__}; expected a JSON value")


def _check_object(value: dict[str, Any]) -> dict[str, Any]:
    check_json(value)
    return value


def _check_text(text: str) -> str:
    _check_scalar(text)
    return text


type Text = Annotated[str, AfterValidator(_check_text)]
"""Any text, also empty."""

type NonEmptyStr = Annotated[
    str,
    AfterValidator(_check_text),
    AfterValidator(_check_not_blank),
    Field(json_schema_extra={"pattern": r"\S"}),
]
"""Text that is not blank; surrounding blanks are kept."""

type Timestamp = Annotated[datetime, Field(strict=False), AfterValidator(_check_offset)]

type Object = Annotated[dict[str, Any], AfterValidator(_check_object)]
"""A free-form JSON object."""

Item = TypeVar("Item")
# Not a `type` statement: a named type would get its own definition in the schema.
Array = Annotated[tuple[Item, ...], Field(strict=False)]
"""A JSON array. Not strict, because a parsed document has lists; its items are strict."""

type Count = Annotated[int, Field(ge=0)]
type Seconds = Annotated[float, Field(ge=0)]
