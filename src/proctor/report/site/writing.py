"""The directory of a site: made whole beside its place, then moved there; or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from proctor.contained import create_below
from proctor.errors import InputError
from proctor.files import write_small
from proctor.sentence import reason_of

_MARKER: Final = "proctor-site.json"
_FORMAT: Final = "proctor-site-1"


class _Marker(msgspec.Struct, frozen=True):
    """What tells a site from any other directory."""

    format: str
    files: list[str]
    """All files of the site but this one, sorted."""


def write_site(place: Path, pages: Iterator[tuple[str, str]], read: Sequence[str] = ()) -> int:
    """Write pages, each a relative name and its text, into a directory; how many there were.

    A site that was written there before is replaced; anything else is left alone.

    Raises:
        InputError: something else is there, it is in what was read, or it cannot be written.
    """
    target = Path(os.path.realpath(place))
    for each in read:
        if target.is_relative_to(os.path.realpath(each)):
            raise InputError(f"{place}: inside {each}; proctor writes nothing into what it reads")
    check_place(target, place)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name}.", suffix=".partial", dir=target.parent
        ) as beside:
            made = Path(beside) / "site"
            names = sorted(_write_pages(made, pages))
            marker = msgspec.json.format(msgspec.json.encode(_Marker(_FORMAT, names)))
            write_small(str(made / _MARKER), marker + b"\n")
            check_place(target, place)
            if target.exists():
                target.rename(Path(beside) / "before")
            made.rename(target)
    except OSError as error:
        raise InputError(f"{place}: cannot be written: {reason_of(error)}") from error
    return len(names)


def _write_pages(made: Path, pages: Iterator[tuple[str, str]]) -> Iterator[str]:
    made.mkdir(mode=0o755)
    for name, text in pages:
        with create_below(made, name) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
        yield name


def check_place(target: Path, place: Path) -> None:
    """See that nothing but a site, and nothing beside a site, would be replaced.

    Raises:
        InputError: something would be.
    """
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise InputError(f"{place}: a file is there; expected a new directory")
    strange = next(_find_strange(target), None)
    if strange is not None:
        raise InputError(
            f"{place}: not empty, and {strange!r} in it is not a site's; expected a new "
            "directory, or a site that proctor wrote"
        )


def _find_strange(target: Path) -> Iterator[str]:
    """Files there that are no site's; of a directory that is none, the names in it."""
    own = {_MARKER, *_list_own(target)}
    if len(own) == 1:
        yield from sorted(each.name for each in target.iterdir())
        return
    for folder, _, names in os.walk(target):
        for name in sorted(names):
            file = Path(folder, name).relative_to(target).as_posix()
            if file not in own:
                yield file


def _list_own(target: Path) -> list[str]:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        marker = msgspec.json.decode((target / _MARKER).read_bytes(), type=_Marker)
        if marker.format == _FORMAT:
            return marker.files
    return []
