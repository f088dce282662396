"""Long lists in pages: what an address asks for, and the addresses around it."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from proctor.errors import InputError

_LONGEST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """One page of a list, and the ones beside it."""

    number: int
    """Of this page, from 1 on."""
    last: int
    earlier: str | None
    """Address of the page before."""
    later: str | None


def make_pages(path: str, asked: Mapping[str, str], number: int, last: int) -> Pages:
    """The pages around one; a number beyond the last is the last."""
    number = min(number, max(last, 1))

    def address(to: int) -> str | None:
        return make_address(path, {**asked, "page": str(to)}) if 1 <= to <= last else None

    return Pages(
        number=number, last=max(last, 1), earlier=address(number - 1), later=address(number + 1)
    )


def make_address(path: str, asked: Mapping[str, str]) -> str:
    """A path with what is asked of it; what is empty, and a first page, is left out."""
    kept = {
        name: value
        for name, value in asked.items()
        if value and not (name == "page" and value == "1")
    }
    return f"{path}?{urlencode(kept)}" if kept else path


def read_page(query: QueryParams) -> int:
    """The page that is asked for.

    Raises:
        InputError: it is no number.
    """
    text = query.get("page", "1")
    if not (text.isascii() and text.isdecimal() and int(text[:9]) > 0):
        raise InputError(f"page is {text[:40]!r}; expected a whole number, 1 or more")
    return int(text[:9])


def read_choice(query: QueryParams, name: str, choices: Mapping[str, str]) -> str:
    """One of a few; the first where none is named.

    Raises:
        InputError: it is none of them.
    """
    given = query.get(name) or next(iter(choices))
    if given not in choices:
        raise InputError(
            f"{name} is {given[:40]!r}; expected one of {', '.join(filter(None, choices))}"
        )
    return given


def read_words(query: QueryParams, name: str) -> str:
    """What somebody typed into a box.

    Raises:
        InputError: it is longer than any name.
    """
    text = query.get(name, "").strip()
    if len(text) > _LONGEST:
        raise InputError(f"{name} has {len(text):,} characters; expected at most {_LONGEST}")
    return text
