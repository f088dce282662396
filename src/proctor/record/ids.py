"""Ids that may become part of a path, and conversion of other names to such ids.

    check_id(text, "trial_id")     refuse a name that must not become part of a path
    make_id("a/b c")               "a-b-c-" and a short digest; deterministic
    shown_name(name)               a file name as text that can be stored

Does not build paths.
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
        RecordError: it breaks the rule; `what` names the field in the message.
    """
    if _ID.fullmatch(text):
        return
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    raise RecordError(
        f"{what} is {shown!r}; expected 1 to {LONGEST} of the characters A-Z a-z 0-9 . _ -, "
        "the first of them a letter or a digit"
    )


def make_id(text: str) -> str:
    """Return a valid id unchanged, else a slug of the name with a short digest.

    The digest covers the whole name, so that names with equal slugs stay distinct.
    """
    if _ID.fullmatch(text):
        return text
    digest = sha256_hex(text.encode("utf-8", "surrogatepass"))[:_DIGEST_LENGTH]
    slug = _STRANGE.sub("-", text).strip("-._") or "unknown"
    return f"{slug[: LONGEST - _DIGEST_LENGTH - 1]}-{digest}"


def shown_name(name: str) -> str:
    """Decode a file name; invalid UTF-8 is shown as escaped bytes."""
    return os.fsencode(name).decode(errors="backslashreplace")
