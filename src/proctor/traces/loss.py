"""What a conversion could not keep, found by comparing the original with what is read back.

Losses are not claimed from a list of known gaps: a field is lost if reading back does not restore
it.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

_SUMMARY: Final = 60
_MISSING: Final = object()


class Loss(msgspec.Struct, frozen=True, gc=False):
    """One field that was lost."""

    path: str
    """Its path in the source, as in `steps[3].metrics.cost_usd`."""
    value_summary: str
    """The beginning of the value, as JSON."""
    why: str
    """A sentence for a person."""

    def __str__(self) -> str:
        return f"{self.path} ({self.value_summary}): {self.why}"


def at_key(path: str, key: str) -> str:
    """The path of a member of the object at path."""
    key = key if len(key) <= _SUMMARY else key[:_SUMMARY] + "…"
    return f"{path}.{key}" if path else key


def render_summary(value: object) -> str:
    """Render a JSON value in about 60 characters."""
    if isinstance(value, str | list | tuple | dict) and len(value) > _SUMMARY:
        if not isinstance(value, str):
            return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
        value = value[:_SUMMARY] + "…"
    try:
        text = msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, RecursionError):
        text = ascii(value) if isinstance(value, str) else "a deep or unprintable value"
    return text if len(text) <= _SUMMARY + 8 else text[:_SUMMARY] + "…"


def list_losses(before: Any, after: Any, path: str = "") -> Iterator[Loss]:
    """Everything in one JSON value that another one lacks, or has differently.

    Additional values in the other one are not losses, and neither is an absent null.
    """
    if before is None or before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from list_losses(value, after.get(key, _MISSING), at_key(path, key))
    elif isinstance(before, list | tuple) and isinstance(after, list | tuple):
        for index, value in enumerate(before):
            other = after[index] if index < len(after) else _MISSING
            yield from list_losses(value, other, f"{path}[{index}]")
    elif after is _MISSING or after is None:
        yield Loss(path, render_summary(before), "there is no place for it")
    else:
        why = f"it comes back as {render_summary(after)}"
        yield Loss(path, render_summary(before), why)
