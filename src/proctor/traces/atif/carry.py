"""One ATIF step as entries, and what either side has no field for.

A step becomes its message, then each call with its results, then results that no call made. The
entries say only what the step says; ATIF has no exit code, so it stays null.

What an entry has no field for (ids of calls, metrics, reasoning, `extra`, content parts, and on the
first entry what the document says of itself) is stored in `metadata["atif"]`. What a step has no
field for (exit code, stderr, duration, media, the entry's own metadata) is stored in
`extra["trajectory_entry"]`. Both may come from anybody: values of another shape are ignored, and
convert.py uses them only where writing the entries again gives the very same step, so they add to
what the fields say and cannot change it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from proctor.traces.atif.model import (
    Agent,
    Atif,
    Content,
    ContentPart,
    FinalMetrics,
    Metrics,
    Observation,
    ObservationResult,
    Step,
    SubagentRef,
    ToolCall,
)
from proctor.traces.entry import KEYS, Entry, Object

ATIF_KEY: Final = "atif"
_DOCUMENT: Final = "document"


class HeadCarry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of a step, on the entry that holds its message."""

    message: tuple[ContentPart, ...] | None = None
    """Its parts, when it is not plain text."""
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    """Only ever empty: a list without calls is not the same as no list."""
    observation: Observation | None = None
    """Only ever without results, for the same reason."""
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = None
    extra: Object | None = None
    result_order: tuple[int, ...] | None = None
    """The place of each result in the observation, when it is not the order of the entries."""


class CallCarry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of a tool call, on its entry."""

    tool_call_id: str | None = None
    extra: Object | None = None


class ResultCarry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of a result, on its entry."""

    source_call_id: str | UnsetType | None = UNSET
    """Absent if it follows from the order of the entries."""
    content: tuple[ContentPart, ...] | None = None
    subagent_trajectory_ref: tuple[SubagentRef, ...] | None = None
    extra: Object | None = None


class DocumentCarry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Of the document, on the first entry."""

    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent | None = None
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: Object | None = None
    subagent_trajectories: tuple[Atif, ...] | None = None


def flatten(content: Content | None) -> tuple[str | None, list[str] | None]:
    """The text and the files of a message or result, as an entry has them."""
    if content is None or isinstance(content, str):
        return content, None
    texts = [part.text for part in content if part.text is not None]
    media = [part.source.path for part in content if part.source is not None]
    return "\n".join(texts), media or None


def call_id(step: int, index: int) -> str:
    """The id of a call without one; steps count from 1, calls from 0."""
    return f"call_{step}_{index + 1}"


def with_carry(entry: Entry, carry: msgspec.Struct) -> Entry:
    """The entry with a carry in its metadata; unchanged when there is nothing to carry."""
    held = _json_of(carry)
    if not held:
        return entry
    return msgspec.structs.replace(entry, metadata={ATIF_KEY: held})


def _json_of(carry: msgspec.Struct) -> Object:
    # Through text, so that it equals what a reader of the file gets: to_builtins leaves tuples.
    held: Object = msgspec.json.decode(msgspec.json.encode(carry))
    return held


def read_carry[T: msgspec.Struct](entry: Entry, kind: type[T]) -> T:
    """What an entry carries; empty where it carries nothing usable."""
    held = (entry.metadata or {}).get(ATIF_KEY)
    try:
        return msgspec.convert({} if held is None else held, kind)
    except msgspec.ValidationError:
        return kind()


def with_document(entry: Entry, carry: DocumentCarry) -> Entry:
    """The first entry with what the document says of itself."""
    held = _json_of(carry)
    metadata = entry.metadata or {}
    inner = metadata.get(ATIF_KEY, {})
    if not held or not isinstance(inner, dict) or _DOCUMENT in inner:
        return entry
    metadata = {**metadata, ATIF_KEY: {**inner, _DOCUMENT: held}}
    return msgspec.structs.replace(entry, metadata=metadata)


def split_document(entry: Entry) -> tuple[Entry, DocumentCarry]:
    """The first entry as it is without the document's carry, and that carry."""
    inner = (entry.metadata or {}).get(ATIF_KEY)
    if not isinstance(inner, dict) or _DOCUMENT not in inner:
        return entry, DocumentCarry()
    try:
        carry = msgspec.convert(inner[_DOCUMENT], DocumentCarry)
    except (msgspec.ValidationError, RecursionError):
        return entry, DocumentCarry()
    inner = {key: value for key, value in inner.items() if key != _DOCUMENT}
    metadata = {**(entry.metadata or {}), ATIF_KEY: inner}
    if not inner:
        del metadata[ATIF_KEY]
    return msgspec.structs.replace(entry, metadata=metadata or None), carry


def pair_results(tools: Iterable[tuple[bool, str | None]]) -> list[int | None]:
    """The call that each result belongs to, as far as the order of the entries shows.

    Tools are given as (is it a call, its name). A result belongs to the first open call of its
    name, or to the first open call at all when it names no tool.
    """
    waiting: deque[int] = deque()
    waiting_by_name: dict[str | None, deque[int]] = {}
    answered: set[int] = set()
    count = 0
    found: list[int | None] = []
    for is_call, name in tools:
        if is_call:
            waiting.append(count)
            waiting_by_name.setdefault(name, deque()).append(count)
            count += 1
            continue
        line = waiting if name is None else waiting_by_name.get(name, deque())
        while line and line[0] in answered:
            line.popleft()
        found.append(line[0] if line else None)
        if line:
            answered.add(line.popleft())
    return found


ROLES: Final = {"system": "system", "user": "user", "agent": "assistant"}
COMMAND_KEYS: Final = ("command", "cmd", "keystrokes")
"""Arguments that are a command, in order of preference."""

type Slot = tuple[str, int]
"""`c` or `r`, and the place in tool_calls or in results."""


class Place(msgspec.Struct, frozen=True):
    """The place of a step."""

    number: int
    """Its place in the document, from 1."""
    turn: int
    """The step of its entries."""
    order: str | None = None
    """Calls and results as c and r; null for each call with its results after it."""


def step_entries(step: Step, place: Place) -> list[Entry]:
    """The entries of a step, the one with the message first; what has no field is carried."""
    calls, results = calls_of(step), results_of(step)
    slots = order_slots(step, place.order)
    bare = _bare_tools(step, slots, place.turn)
    pairs = pair_results((entry.role == "tool_call", entry.tool_name) for entry in bare)
    paired_ids = iter([None if call is None else calls[call].tool_call_id for call in pairs])
    entries = [with_carry(_head(step, place.turn), _head_carry(step, slots, place))]
    for (kind, index), entry in zip(slots, bare, strict=True):
        carry: CallCarry | ResultCarry
        if kind == "c":
            carry = _call_carry(calls[index], place.number, index)
        else:
            carry = _result_carry(results[index], next(paired_ids))
        entries.append(with_carry(entry, carry))
    return entries


def calls_of(step: Step) -> tuple[ToolCall, ...]:
    """The calls of a step, none when it has no list of them."""
    return step.tool_calls or ()


def results_of(step: Step) -> tuple[ObservationResult, ...]:
    """The results of a step, none when it has no observation."""
    return step.observation.results if step.observation is not None else ()


def find_command(arguments: Object) -> str:
    """What a tool call ran, if its arguments name a command; "" if not."""
    for key in COMMAND_KEYS:
        if isinstance(command := arguments.get(key), str):
            return command
    return ""


def order_slots(step: Step, order: str | None = None) -> list[Slot]:
    """Calls and results in the order of their entries."""
    calls, results = calls_of(step), results_of(step)
    if order is not None and (order.count("c"), order.count("r")) == (len(calls), len(results)):
        count = {"c": iter(range(len(calls))), "r": iter(range(len(results)))}
        return [(kind, next(count[kind])) for kind in order if kind in count]
    owned: dict[int | None, list[Slot]] = {}
    for index, owner in enumerate(_owners(step)):
        owned.setdefault(owner, []).append(("r", index))
    slots: list[Slot] = []
    for index in range(len(calls)):
        slots += [("c", index), *owned.get(index, ())]
    return slots + owned.get(None, [])


def _owners(step: Step) -> list[int | None]:
    """The call that each result names. Where calls share an id, results take them in turn."""
    named: dict[str | None, deque[int]] = {None: deque()}
    for index, call in enumerate(calls_of(step)):
        named.setdefault(call.tool_call_id, deque()).append(index)
    owners: list[int | None] = []
    for result in results_of(step):
        sharing = named.get(result.source_call_id, deque())
        owners.append(sharing[0] if sharing else None)
        # The last call keeps the results that are left over.
        if len(sharing) > 1:
            sharing.popleft()
    return owners


def _head(step: Step, turn: int) -> Entry:
    text, media = flatten(step.message)
    role = ROLES.get(step.source, "system")
    return Entry(role=role, step=turn, content=text, media=media, timestamp=step.timestamp)


def _bare_tools(step: Step, slots: list[Slot], turn: int) -> list[Entry]:
    """The entries of calls and results, nothing carried."""
    calls, results, owners = calls_of(step), results_of(step), _owners(step)
    entries: list[Entry] = []
    for kind, index in slots:
        if kind == "c":
            entries.append(_bare_call(calls[index], turn))
            continue
        owner = owners[index]
        name = None if owner is None else calls[owner].function_name
        text, media = flatten(results[index].content)
        entries.append(
            Entry(role="tool_result", step=turn, tool_name=name, stdout=text, media=media)
        )
    return entries


def _bare_call(call: ToolCall, turn: int) -> Entry:
    return Entry(
        role="tool_call",
        step=turn,
        tool_name=call.function_name,
        command=find_command(call.arguments),
        arguments=call.arguments,
    )


def _head_carry(step: Step, slots: list[Slot], place: Place) -> HeadCarry:
    order = tuple(index for kind, index in slots if kind == "r")
    return HeadCarry(
        message=None if isinstance(step.message, str) else step.message,
        model_name=step.model_name,
        reasoning_effort=step.reasoning_effort,
        reasoning_content=step.reasoning_content,
        tool_calls=step.tool_calls if step.tool_calls == () else None,
        observation=step.observation if not results_of(step) else None,
        metrics=step.metrics,
        is_copied_context=step.is_copied_context,
        llm_call_count=step.llm_call_count,
        extra=step.extra,
        result_order=order if list(order) != sorted(order) and place.order is None else None,
    )


def _call_carry(call: ToolCall, number: int, index: int) -> CallCarry:
    natural = call.tool_call_id == call_id(number, index)
    return CallCarry(tool_call_id=None if natural else call.tool_call_id, extra=call.extra)


def _result_carry(result: ObservationResult, paired_id: str | None) -> ResultCarry:
    return ResultCarry(
        source_call_id=UNSET if result.source_call_id == paired_id else result.source_call_id,
        content=result.content if isinstance(result.content, tuple) else None,
        subagent_trajectory_ref=result.subagent_trajectory_ref,
        extra=result.extra,
    )


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


def list_changed_fields(derived: Entry, entry: Entry) -> Object:
    """The fields of an entry that differ from what the ATIF side says about it."""
    pairs = ((name, getattr(derived, name), getattr(entry, name)) for name in KEYS)
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
