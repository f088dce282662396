"""How a fetch is watched: its progress, its limits, and how it is stopped."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

MOST_FILES = 200_000
"""Most files that are taken from one repository at a time."""


type Report = Callable[[str, bool], None]
"""Called with a sentence, and whether it is passing: the next one replaces it."""


def say_nothing(_sentence: str, _is_passing: bool) -> None:  # noqa: FBT001 - a callback
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class Fetching:
    """What a fetch reports to, and what bounds it."""

    report: Report = say_nothing
    stop: threading.Event = field(default_factory=threading.Event)
    """Set from another thread to end the fetch."""
    most_bytes: int | None = None
    """Most bytes that a repository may take; None: `find_room` of the cache."""
    most_files: int = MOST_FILES
