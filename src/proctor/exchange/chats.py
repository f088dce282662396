"""A trace as turns of the model: its inputs, its message, its tool calls, their results.

Entries keep their index in the trace, from 0, so that an export can be compared with
them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from proctor.traces.atif.carry import ATIF_KEY, pair_results
from proctor.traces.entry import Entry, Object

# Keys under which harnesses and ATIF store call ids, reasoning and token counts.
_CONVERSATION = "conversation"
_IDS = ("tool_call_id", "source_call_id", "call_id")
_THOUGHTS = ("reasoning_content", "thinking")
_USED = ("metrics", "usage")
_INPUT = ("prompt_tokens", "input_tokens", "tokens_in", "request_tokens")
_OUTPUT = ("completion_tokens", "output_tokens", "tokens_out", "response_tokens")
_CACHED = ("cached_tokens", "cache_read_input_tokens", "cache_read_tokens")


class Placed(NamedTuple):
    """An entry with its index in the trace."""

    at: int
    entry: Entry


@dataclass(slots=True)
class Call:
    """A tool call and its result."""

    call: Placed
    call_id: str
    """The id in the trace, else one made from the index."""
    result: Placed | None = None
    """None if the trace ends before it."""

    @property
    def failed(self) -> str | None:
        """How the call failed, if the trace says so."""
        if self.result is None:
            return None
        entry = self.result.entry
        if entry.exit_code:
            # -1 is how trajectory.jsonl records a command that was killed after its time limit.
            return "timeout" if entry.exit_code == -1 else str(entry.exit_code)
        return "tool_error" if _beside(entry).get("is_error") is True else None


@dataclass(slots=True)
class Answer:
    """A tool result as an input of the model."""

    result: Placed
    call_id: str | None
    """Id of the call that it answers; None if unknown."""


@dataclass(slots=True)
class Chat:
    """One turn of the model."""

    step: int
    inputs: list[Placed | Answer]
    """The inputs since the previous turn."""
    said: Placed | None = None
    """None if the model only called tools."""
    calls: list[Call] = field(default_factory=list)

    @property
    def first(self) -> Placed:
        """The turn's first entry."""
        return self.said or self.calls[0].call


class Chats(NamedTuple):
    """All turns of a trace."""

    turns: list[Chat]
    rest: list[Placed | Answer]
    """Inputs after the last turn."""


def group_chats(entries: Sequence[Entry]) -> Chats:
    """Group a trace into turns, in order; every entry is in a turn or in the rest."""
    callers = _pair(entries)
    calls: dict[int, Call] = {}
    turns: list[Chat] = []
    pending: list[Placed | Answer] = []
    for at, entry in enumerate(entries):
        placed = Placed(at, entry)
        if entry.role == "assistant":
            turns.append(Chat(entry.step, pending, placed))
            pending = []
        elif entry.role == "tool_call":
            if not turns or turns[-1].step != entry.step:
                turns.append(Chat(entry.step, pending))
                pending = []
            calls[at] = Call(placed, find_call_id(entry) or f"call_{at}")
            turns[-1].calls.append(calls[at])
        elif entry.role == "tool_result":
            call = calls.get(callers.get(at, -1))
            if call is not None and call.result is None:
                call.result = placed
            pending.append(Answer(placed, call.call_id if call else find_call_id(entry)))
        else:
            pending.append(placed)
    return Chats(turns, pending)


def _pair(entries: Sequence[Entry]) -> dict[int, int]:
    """The index of the call that each result answers: by id, else by order."""
    tools = [
        Placed(at, each)
        for at, each in enumerate(entries)
        if each.role in ("tool_call", "tool_result")
    ]
    calls = [each.at for each in tools if each.entry.role == "tool_call"]
    results = [each for each in tools if each.entry.role == "tool_result"]
    by_order = pair_results(
        (each.entry.role == "tool_call", each.entry.tool_name or None) for each in tools
    )
    by_id = {call_id: at for at in calls if (call_id := find_call_id(entries[at])) is not None}
    found: dict[int, int] = {}
    for result, number in zip(results, by_order, strict=True):
        named = by_id.get(find_call_id(result.entry) or "")
        if named is not None and named < result.at:
            found[result.at] = named
        elif number is not None:
            found[result.at] = calls[number]
    return found


def find_call_id(entry: Entry) -> str | None:
    """The id of a call, or of the call that a result answers; None if the trace has none."""
    beside = _beside(entry)
    return next((text for key in _IDS if isinstance(text := beside.get(key), str) and text), None)


def find_thought(entry: Entry) -> str | None:
    """The model's reasoning in a turn, if the trace stores it separately."""
    beside = _beside(entry)
    return next((text for key in _THOUGHTS if isinstance(text := beside.get(key), str)), None)


def find_model(entry: Entry) -> str | None:
    """The model's name in a turn."""
    name = _beside(entry).get("model_name")
    return name if isinstance(name, str) and name else None


class Tokens(NamedTuple):
    """Token counts of one turn; None is unknown."""

    input: int | None
    output: int | None
    cached: int | None


_UNCOUNTED = Tokens(None, None, None)


def find_tokens(entry: Entry) -> Tokens:
    """The token counts of a turn, from its metadata."""
    if not entry.metadata:
        return _UNCOUNTED
    beside = _beside(entry)
    used = next((each for key in _USED if isinstance(each := beside.get(key), dict)), {})
    return Tokens(_count(used, _INPUT), _count(used, _OUTPUT), _count(used, _CACHED))


def flatten_entry(entry: Entry) -> Object:
    """Flatten an entry for comparison: known metadata becomes top-level fields.

    A format preserves reasoning and token counts, but not the place where a harness stored them.
    """
    flat: Object = msgspec.json.decode(msgspec.json.encode(entry))
    metadata = flat.pop("metadata", None)
    if not metadata:
        return flat
    inner = _held(metadata)
    used = next((each for key in _USED if isinstance(each := inner.get(key), dict)), {})
    known = {
        "call_id": _take(inner, find_call_id(entry), _IDS),
        "thought": _take(inner, find_thought(entry), _THOUGHTS),
        "model": _take(inner, find_model(entry), ("model_name",)),
        **{
            name: _take(used, count, names)
            for name, count, names in zip(
                Tokens._fields, find_tokens(entry), (_INPUT, _OUTPUT, _CACHED), strict=True
            )
        },
    }
    flat |= {key: value for key, value in known.items() if value is not None}
    for key in _USED:
        if inner.get(key) == {}:
            del inner[key]
    rest = {key: value for key, value in metadata.items() if value != {}}
    return {**flat, "metadata": rest} if rest else flat


def _take[T](held: Object, found: T, names: Sequence[str]) -> T:
    """Remove the found value, under any of its names."""
    key = next((name for name in names if found is not None and held.get(name) == found), None)
    if key is not None:
        del held[key]
    return found


def _count(used: Object, names: Sequence[str]) -> int | None:
    counts = (used.get(name) for name in names)
    return next((each for each in counts if type(each) is int and 0 <= each < 1 << 63), None)


def _beside(entry: Entry) -> Object:
    """A harness's metadata of an entry, at any depth."""
    return _held(entry.metadata or {})


def _held(metadata: Object) -> Object:
    for key in (ATIF_KEY, _CONVERSATION):
        if isinstance(held := metadata.get(key), dict):
            return held
    return metadata
