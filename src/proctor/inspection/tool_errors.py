"""Which tool results are errors, and by what sign.

One definition for every kind of trace, the surest sign first: an exit code other than 0, the flag
that a dialect has for errors, a time-out or a signal, words (only where no exit code is known).
"""

from typing import Any, Final

from proctor.inspection.told import find_told_code, is_failure, is_stopped, output_of
from proctor.trajectory.atif.in_metadata import ATIF_KEY
from proctor.trajectory.entry import Entry, Object

EXIT: Final = "exit_nonzero"
FLAG: Final = "is_error"
STOPPED: Final = "timeout_or_signal"
TEXT: Final = "text"
REASONS: Final = (EXIT, FLAG, STOPPED, TEXT)
"""The signs of an error, the surest first."""

_FLAGS: Final = ("is_error", "isError")
_STOPS: Final = ("timed_out", "timeout", "signal")


def find_error(entry: Entry) -> tuple[str, int | None] | None:
    """By what sign a tool's result is an error, with its exit code; None where it is none."""
    code = entry.exit_code
    if code:
        return EXIT, code
    metadata = entry.metadata
    if metadata is not None and _is_flagged(metadata, _FLAGS):
        return FLAG, code
    if code is not None:
        return None
    return _find_told(entry)


def _find_told(entry: Entry) -> tuple[str, int | None] | None:
    text = output_of(entry)
    code = find_told_code(text) if text else None
    if code is not None:
        return (EXIT, code) if code else None
    metadata = entry.metadata
    if (metadata is not None and _is_flagged(metadata, _STOPS)) or is_stopped(text):
        return STOPPED, None
    return (TEXT, None) if is_failure(text) else None


def _is_flagged(metadata: Object, names: tuple[str, ...]) -> bool:
    """Whether one of the flags is set, in the metadata or in what a dialect or ATIF left there."""
    spoken, atif = metadata.get("conversation"), metadata.get(ATIF_KEY)
    extra = atif.get("extra") if isinstance(atif, dict) else None
    places: tuple[Any, ...] = (metadata, spoken, extra)
    # A signal may be named by a number or by its name.
    return any(
        (value := place.get(name)) is True or (name == "signal" and bool(value))
        for place in places
        if isinstance(place, dict)
        for name in names
    )
