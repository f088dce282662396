"""A document to bytes: JSON, UTF-8, two spaces of indentation, in harbor's order of fields."""

import msgspec

from proctor.errors import TraceError
from proctor.trajectory.atif.model import WRITTEN_VERSION, Atif
from proctor.trajectory.atif.rules import find_problems


def render_atif(atif: Atif) -> bytes:
    """The bytes of a document that harbor's validator takes, absent fields left out.

    Raises:
        TraceError: it is of another version than v1.7, breaks a rule, or cannot be written as JSON.
    """
    if atif.schema_version != WRITTEN_VERSION:
        found = f"the document is {atif.schema_version}; expected {WRITTEN_VERSION}"
        raise TraceError(f"{found}: convert it with to_written_version first")
    if problem := next(find_problems(atif), None):
        raise TraceError(f"the document cannot be written: {problem.message}")
    try:
        data = msgspec.json.encode(atif)
        return msgspec.json.format(data, indent=2) + b"\n"
    except (UnicodeEncodeError, RecursionError) as error:
        raise TraceError(
            f"the document cannot be written as JSON: {type(error).__name__}; expected text of "
            "whole characters, not nested too deeply"
        ) from error
