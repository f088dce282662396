"""What ATIF has no field for, of an entry: it travels in `extra["trajectory_entry"]`.

Exit code, stderr, duration, media, the entry's own metadata: whatever the entry says and the ATIF
object does not tell. It is read as a stranger's; convert.py uses it only where writing the entries
again gives the very same step, so it cannot make an entry say what the step does not.
"""

from typing import Final

import msgspec

from proctor.trajectory.atif.entries import (
    Place,
    calls_of,
    order_slots,
    results_of,
    step_entries,
)
from proctor.trajectory.atif.model import Step
from proctor.trajectory.entry import KEYS, Entry, Object

ENTRY_KEY: Final = "trajectory_entry"
_ABSENT: Final = "absent"
_ORDER: Final = "order"


class Rest(msgspec.Struct, frozen=True):
    """What an ATIF object does not tell about one entry."""

    fields: Object = {}
    """Fields of the entry that differ from what would be read off the object, as they were."""
    absent: bool = False
    """There was no entry with a message; the step begins with a tool."""
    order: str | None = None
    """Calls and results as c and r, when it is not each call with its results after it."""

    def __bool__(self) -> bool:
        return bool(self.fields) or self.absent or self.order is not None


class Rests(msgspec.Struct, frozen=True):
    """The rests of all entries of a step."""

    head: Rest
    calls: tuple[Rest, ...]
    results: tuple[Rest, ...]

    def __bool__(self) -> bool:
        return bool(self.head) or any(self.calls) or any(self.results)


def natural_turn(step: Step, before: int) -> int:
    """The step of a step's entries: an agent's turn counts one up, anything else stays."""
    return before + 1 if step.source == "agent" else before


def write_entries(step: Step, number: int, before: int) -> list[Entry]:
    """The entries of a step, its `extra` taken as it is."""
    return step_entries(step, Place(number, natural_turn(step, before)))


def find_restored(step: Step, number: int, before: int) -> list[Entry] | None:
    """The entries a step was made from, by the rests in its `extra`; None when it has none."""
    bare, rests = split_step(step)
    if not rests:
        return None
    turn = rests.head.fields.get("step", natural_turn(bare, before))
    place = Place(number, turn, rests.head.order)
    written = step_entries(bare, place)
    entries = [_overlaid(written[0], rests.head)]
    for (kind, index), entry in zip(order_slots(bare, place.order), written[1:], strict=True):
        rest = rests.calls[index] if kind == "c" else rests.results[index]
        entries.append(_overlaid(entry, rest))
    return entries[1:] if rests.head.absent and len(entries) > 1 else entries


def _overlaid(entry: Entry, rest: Rest) -> Entry:
    fields = {name: getattr(entry, name) for name in KEYS}
    return Entry(**{**fields, **rest.fields})


def untold_fields(told: Entry, entry: Entry) -> Object:
    """The fields of an entry that differ from what the ATIF side tells about it."""
    pairs = ((name, getattr(told, name), getattr(entry, name)) for name in KEYS)
    return {name: now for name, before, now in pairs if before != now}


def join_step(step: Step, rests: Rests) -> Step:
    """The step with the rests in its `extra`, and in that of its calls and results."""
    replace = msgspec.structs.replace
    step = replace(step, extra=_with_rest(step.extra, rests.head))
    if step.tool_calls is not None:
        pairs = zip(step.tool_calls, rests.calls, strict=True)
        calls = tuple(replace(call, extra=_with_rest(call.extra, rest)) for call, rest in pairs)
        step = replace(step, tool_calls=calls)
    if step.observation is None:
        return step
    found = zip(step.observation.results, rests.results, strict=True)
    results = tuple(replace(each, extra=_with_rest(each.extra, rest)) for each, rest in found)
    return replace(step, observation=replace(step.observation, results=results))


def split_step(step: Step) -> tuple[Step, Rests]:
    """The step without the rests in its `extra`s, and those."""
    replace = msgspec.structs.replace
    extra, head = _split_rest(step.extra)
    calls = [_split_rest(call.extra) for call in calls_of(step)]
    results = [_split_rest(result.extra) for result in results_of(step)]
    rests = Rests(head, tuple(rest for _, rest in calls), tuple(rest for _, rest in results))
    if not rests:
        return step, rests
    bare = replace(step, extra=extra)
    if step.tool_calls is not None:
        pairs = zip(step.tool_calls, calls, strict=True)
        bare = replace(bare, tool_calls=tuple(replace(c, extra=e) for c, (e, _) in pairs))
    if step.observation is not None:
        found = zip(step.observation.results, results, strict=True)
        made = tuple(replace(each, extra=kept) for each, (kept, _) in found)
        bare = replace(bare, observation=replace(step.observation, results=made))
    return bare, rests


def _with_rest(extra: Object | None, rest: Rest) -> Object | None:
    if not rest:
        return extra
    held: Object = dict(rest.fields)
    if rest.absent:
        held[_ABSENT] = True
    if rest.order is not None:
        held[_ORDER] = rest.order
    return {**(extra or {}), ENTRY_KEY: held}


def _split_rest(extra: Object | None) -> tuple[Object | None, Rest]:
    """An `extra` without a rest, and the rest; as it is when it holds none of the right shape."""
    held = None if extra is None else extra.get(ENTRY_KEY)
    if extra is None or not isinstance(held, dict) or not held.keys() <= {*KEYS, _ABSENT, _ORDER}:
        return extra, Rest()
    fields = {key: value for key, value in held.items() if key in KEYS}
    try:
        msgspec.convert({"role": "", "step": 0, **fields}, Entry)
    except (msgspec.ValidationError, RecursionError):
        return extra, Rest()
    order = held.get(_ORDER)
    if not isinstance(order, str | None) or held.get(_ABSENT, True) is not True:
        return extra, Rest()
    rest = Rest(fields, absent=_ABSENT in held, order=order)
    return {key: value for key, value in extra.items() if key != ENTRY_KEY} or None, rest
