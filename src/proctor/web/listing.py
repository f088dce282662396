"""Pagination: parameters of a list, and the addresses of its pages."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from proctor.errors import InputError

_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """One page of a list, and its neighbours."""

    number: int
    """Number of this page, from 1."""
    last: int
    earlier: str | None
    """Address of the previous page."""
    later: str | None


def make_pages(path: str, asked: Mapping[str, str], number: int, last: int) -> Pages:
    """Make the links around a page; a number beyond the last becomes the last."""
    number = min(number, max(last, 1))

    def address(to: int) -> str | None:
        return make_address(path, {**asked, "page": str(to)}) if 1 <= to <= last else None

    return Pages(
        number=number, last=max(last, 1), earlier=address(number - 1), later=address(number + 1)
    )


def make_address(path: str, asked: Mapping[str, str]) -> str:
    """A path with query parameters; empty ones and page 1 are omitted."""
    kept = {
        name: value
        for name, value in asked.items()
        if value and not (name == "page" and value == "1")
    }
    return f"{path}?{urlencode(kept)}" if kept else path


def read_page(query: QueryParams) -> int:
    """Parse the page number.

    Raises:
        InputError: it is not a number.
    """
    text = query.get("page", "1")
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
        raise InputError(f"page is {text[:40]!r}; expected a whole number, 1 or more")
    return int(text[:9])


def read_choice(query: QueryParams, name: str, choices: Mapping[str, str]) -> str:
    """Parse one of a few choices; the first is the default.

    Raises:
        InputError: it is not one of them.
    """
    given = query.get(name) or next(iter(choices))
    if given not in choices:
        raise InputError(
            f"{name} is {given[:40]!r}; expected one of {', '.join(filter(None, choices))}"
        )
    return given


def read_words(query: QueryParams, name: str) -> str:
    """Parse a text field.

    Raises:
        InputError: it is longer than any name.
    """
    text = query.get(name, "").strip()
    if len(text) > _LONGEST:
        raise InputError(f"{name} has {len(text):,} characters; expected at most {_LONGEST}")
    return text
