"""Ids are names, not paths: what may become part of a path, and how a name that may not is made to.

    check_id(text, "trial_id")     refuses what breaks the rule
    make_id("a/b c")               "a-b-c-" and a short digest; the same name gives the same id
    shown_name(name)               a name of the file system, as text that can be stored

Nothing here makes a path.
"""

import os
import re
from typing import Final

from proctor.digest import sha256_hex
from proctor.errors import RecordError

LONGEST: Final = 200
ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
"""Whole-string: no separator, no leading dot or underscore, ASCII only."""

_ID = re.compile(ID_PATTERN)
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")
_DIGEST_LENGTH = 12
_SHOWN = 60


def check_id(text: str, what: str) -> None:
    """Refuse a name that must not become part of a path.

    Raises:
        RecordError: it breaks the rule; `what` says whose name it is.
    """
    if _ID.fullmatch(text):
        return
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    raise RecordError(
        f"{what} is {shown!r}; expected 1 to {LONGEST} of the characters A-Z a-z 0-9 . _ -, "
        "the first of them a letter or a digit"
    )


def make_id(text: str) -> str:
    """The name itself where it keeps the rule, else a slug of it and a short digest.

    The digest is of the whole name, so that names which slug alike stay apart.
    """
    if _ID.fullmatch(text):
        return text
    digest = sha256_hex(text.encode("utf-8", "surrogatepass"))[:_DIGEST_LENGTH]
    slug = _STRANGE.sub("-", text).strip("-._") or "unknown"
    return f"{slug[: LONGEST - _DIGEST_LENGTH - 1]}-{digest}"


def shown_name(name: str) -> str:
    """A name of the file system as text; one that is none shows its bytes."""
    return os.fsencode(name).decode(errors="backslashreplace")
