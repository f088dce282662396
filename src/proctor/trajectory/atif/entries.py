"""One ATIF step as entries: its message, then each call with its results, then what no call made.

It says only what the step says. An exit code is not known to ATIF, so it stays null.
"""

from collections import deque
from typing import Final

import msgspec
from msgspec import UNSET

from proctor.trajectory.atif.in_metadata import (
    CallCarry,
    HeadCarry,
    ResultCarry,
    call_id,
    flatten,
    pair_results,
    with_carry,
)
from proctor.trajectory.atif.model import ObservationResult, Step, ToolCall
from proctor.trajectory.entry import Entry, Object

ROLES: Final = {"system": "system", "user": "user", "agent": "assistant"}
COMMAND_KEYS: Final = ("command", "cmd", "keystrokes")
"""Arguments that are a command, in order of preference."""

type Slot = tuple[str, int]
"""`c` or `r`, and the place in tool_calls or in results."""


class Place(msgspec.Struct, frozen=True):
    """Where a step stands."""

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
    told = iter([None if call is None else calls[call].tool_call_id for call in pairs])
    entries = [with_carry(_head(step, place.turn), _head_carry(step, slots, place))]
    for (kind, index), entry in zip(slots, bare, strict=True):
        carry: CallCarry | ResultCarry
        if kind == "c":
            carry = _call_carry(calls[index], place.number, index)
        else:
            carry = _result_carry(results[index], next(told))
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


def _result_carry(result: ObservationResult, told: str | None) -> ResultCarry:
    return ResultCarry(
        source_call_id=UNSET if result.source_call_id == told else result.source_call_id,
        content=result.content if isinstance(result.content, tuple) else None,
        subagent_trajectory_ref=result.subagent_trajectory_ref,
        extra=result.extra,
    )
