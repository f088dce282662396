"""The order in which the steps of a trial were run, as harbor's result.json tells it.

Their directories are listed by name, and `three` was not run before `two`. A trial that was killed
has no result and keeps the order of names.
"""

import contextlib
from collections.abc import Callable, Collection

import msgspec

from proctor.errors import DamageError, InputError
from proctor.files import read_small
from proctor.traced.candidates import Part
from proctor.traced.opening import Opened

_RESULT = "result.json"


class _Step(msgspec.Struct, frozen=True):
    step_name: str


class _Result(msgspec.Struct, frozen=True):
    step_results: list[_Step] | None = None


def order_parts(
    parts: list[Part], files: Collection[str], open_file: Callable[[str], Opened]
) -> list[Part]:
    """Parts in the order they were run; those that no result names come last, as they were."""
    if len(parts) < 2 or _RESULT not in files:
        return parts
    places = {name: place for place, name in reversed(list(enumerate(_list_steps(open_file))))}
    return sorted(parts, key=lambda part: places.get(part.name, len(places)))


def _list_steps(open_file: Callable[[str], Opened]) -> list[str]:
    # What cannot be read here is said where the file itself is looked at.
    with (
        contextlib.suppress(OSError, InputError, DamageError, msgspec.MsgspecError, RecursionError),
        open_file(_RESULT) as path,
    ):
        found = msgspec.json.decode(read_small(path), type=_Result)
        return [step.step_name for step in found.step_results or ()]
    return []
