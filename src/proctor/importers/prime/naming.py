"""Names made of Prime's ids and of what an agent calls its file: none of them leads anywhere else.

A trial is called `prime-EVALUATION-SAMPLE`. An id that is a plain name stands in it as it is; of
any other a slug does, with a short digest of the id, so that two ids with one slug stay apart
whatever the order in which they come.
"""

import re
from pathlib import PurePosixPath
from typing import Final

from proctor.digest import sha256_hex

CONVERSATION: Final = "conversation.jsonl"
SAMPLE: Final = "prime_sample.json"
OUTPUT: Final = "output.md"
"""What a submitted file is called that has no name, or none that can be used."""

_RESERVED: Final = frozenset({CONVERSATION, SAMPLE, "trajectory.jsonl", "trajectory.json"})
"""Ours, and those that would be taken for the trial's trace."""
_STRANGE = re.compile(r"[^A-Za-z0-9_.-]+")
_DIGEST: Final = 12
_LONGEST: Final = 80
"""Characters of one id in a name, so that two of them and what is around fit into 200."""
_LONGEST_PART: Final = 200
_MOST_PARTS: Final = 8


def slug(text: str) -> str:
    """The text with every run of other characters as one `-`."""
    return _STRANGE.sub("-", text.strip()).strip("-") or "unknown"


def plain_name(text: str) -> str:
    """The text itself where it is its own slug and short, else the slug and a short digest."""
    name = slug(text)
    if name == text and len(name) <= _LONGEST:
        return name
    digest = sha256_hex(text.encode("utf-8", "surrogatepass"))[:_DIGEST]
    return f"{name[: _LONGEST - _DIGEST - 1]}-{digest}"


def trial_name(evaluation: str, sample: str) -> str:
    """The id of a sample's trial."""
    return f"prime-{plain_name(evaluation)}-{plain_name(sample)}"


def default_experiment(evaluation: str) -> str:
    """The experiment of an evaluation for which none is named."""
    return f"prime-eval-{plain_name(evaluation)}"


def submitted_name(path: object) -> tuple[str, bool]:
    """The name that a submitted file gets, and whether it is the one that it was given.

    A path that leads out of the trial, or is one of ours, is kept under its last part, and where
    that cannot be either, as output.md.
    """
    if path is None or path == "":
        return OUTPUT, True
    if not isinstance(path, str) or "\0" in path:
        return OUTPUT, False
    asked = PurePosixPath(path)
    if 0 < len(asked.parts) <= _MOST_PARTS and all(map(_is_plain, asked.parts)):
        return str(asked), True
    return (asked.name if _is_plain(asked.name) else OUTPUT), False


def _is_plain(part: str) -> bool:
    is_short = 0 < len(part.encode("utf-8", "replace")) <= _LONGEST_PART
    # A leading _ is how records' own directories begin; a backslash parts names elsewhere.
    is_free = part.lower() not in _RESERVED and not part.startswith(("_", ".."))
    return is_short and is_free and part.isprintable() and not set(part) & {"/", "\\"}
