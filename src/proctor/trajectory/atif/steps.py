"""Entries as ATIF steps: a message with the calls and results that go with it.

Every step that comes out passes the rules, whatever the entries say. What ATIF has no field for is
kept in `extra` (see in_extra.py).
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET

from proctor.trajectory.atif.entries import Place, order_slots, step_entries
from proctor.trajectory.atif.in_extra import (
    Rest,
    Rests,
    find_restored,
    join_step,
    natural_turn,
    untold_fields,
    write_entries,
)
from proctor.trajectory.atif.in_metadata import (
    CallCarry,
    HeadCarry,
    ResultCarry,
    call_id,
    find_carry,
    flatten,
    pair_results,
)
from proctor.trajectory.atif.model import (
    Content,
    ContentPart,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
)
from proctor.trajectory.atif.rules import find_step_problems, is_timestamp
from proctor.trajectory.atif.version import without_audio
from proctor.trajectory.entry import Entry

UNNAMED_TOOL: Final = "unknown"
"""Stands where an entry does not name its tool."""
_TOOL_ROLES: Final = ("tool_call", "tool_result")


class Group(msgspec.Struct, frozen=True):
    """The entries that become one step."""

    head: Entry | None
    """The message; null where tools come without one."""
    tools: list[Entry]

    @property
    def entries(self) -> list[Entry]:
        """All of them, in order."""
        return self.tools if self.head is None else [self.head, *self.tools]

    @property
    def turn(self) -> int:
        """The step that its entries share."""
        return self.tools[0].step if self.head is None else self.head.step

    @property
    def source(self) -> str:
        """The ATIF source: who does not speak as user or assistant counts as the system."""
        if self.head is None or self.head.role == "assistant":
            return "agent"
        return "user" if self.head.role == "user" else "system"

    def takes(self, entry: Entry) -> bool:
        """Whether a tool entry goes with this message: same step, and calls only an agent's."""
        if entry.step != self.turn:
            return False
        return entry.role == "tool_result" or self.source == "agent"


def group_entries(entries: Iterable[Entry]) -> list[Group]:
    """Entries as groups: every message begins one, and so does a tool that fits no group."""
    groups: list[Group] = []
    for entry in entries:
        if entry.role not in _TOOL_ROLES:
            groups.append(Group(entry, []))
        elif groups and groups[-1].takes(entry):
            groups[-1].tools.append(entry)
        else:
            groups.append(Group(None, [entry]))
    return groups


def group_step(group: Group, number: int, before: int) -> Step:
    """A group as the step of that number, after a step whose entries had `before` as theirs.

    What the entries carry of an ATIF step is used when the step then follows the rules and gives
    these entries again; else it stays where it is, as the entries' own metadata.
    """
    step = _build(group, number, carried=True)
    if not any(find_step_problems(step, "")):
        if write_entries(step, number, before) == group.entries:
            return step
        joined = _with_rests(step, group, number, before)
        if find_restored(joined, number, before) == group.entries:
            return joined
    step = _build(group, number, carried=False)
    return _with_rests(step, group, number, before)


def _build(group: Group, number: int, *, carried: bool) -> Step:
    head = group.head or Entry(role="assistant", step=group.turn)
    carry = find_carry(head, HeadCarry) if carried else HeadCarry()
    calls = _calls(group, number, carried=carried)
    results = _results(group, calls, carried=carried)
    if carry.result_order is not None and sorted(carry.result_order) == list(range(len(results))):
        results = [each for _, each in sorted(zip(carry.result_order, results, strict=True))]
    message = _content(carry.message, head.content, head.media)
    step = Step(
        step_id=number,
        timestamp=head.timestamp if is_timestamp(head.timestamp or "") else None,
        source=group.source,
        model_name=carry.model_name,
        reasoning_effort=carry.reasoning_effort,
        message="" if message is None else message,
        reasoning_content=carry.reasoning_content,
        tool_calls=tuple(calls) or (carry.tool_calls if carry.tool_calls == () else None),
        observation=_observation(results, carry),
        metrics=carry.metrics,
        is_copied_context=carry.is_copied_context,
        llm_call_count=carry.llm_call_count,
        extra=carry.extra,
    )
    return without_audio(step, "", [])


def _content(
    parts: tuple[ContentPart, ...] | None, text: str | None, media: list[str] | None
) -> Content | None:
    """The carried parts, if they say what the entry says; else its text."""
    return parts if parts is not None and flatten(parts) == (text, media) else text


def _observation(results: list[ObservationResult], carry: HeadCarry) -> Observation | None:
    if results:
        return Observation(results=tuple(results))
    empty = Observation(results=())
    return empty if carry.observation == empty else None


def _calls(group: Group, number: int, *, carried: bool) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for entry in group.tools:
        if entry.role != "tool_call":
            continue
        carry = find_carry(entry, CallCarry) if carried else CallCarry()
        natural = call_id(number, len(calls))
        arguments = entry.arguments
        if arguments is None:
            arguments = {"command": entry.command} if entry.command else {}
        calls.append(
            ToolCall(
                tool_call_id=natural if carry.tool_call_id is None else carry.tool_call_id,
                function_name=UNNAMED_TOOL if entry.tool_name is None else entry.tool_name,
                arguments=arguments,
                extra=carry.extra,
            )
        )
    return calls


def _results(group: Group, calls: list[ToolCall], *, carried: bool) -> list[ObservationResult]:
    pairs = pair_results((entry.role == "tool_call", entry.tool_name) for entry in group.tools)
    entries = [entry for entry in group.tools if entry.role == "tool_result"]
    results: list[ObservationResult] = []
    for entry, pair in zip(entries, pairs, strict=True):
        carry = find_carry(entry, ResultCarry) if carried else ResultCarry()
        source = None if pair is None else calls[pair].tool_call_id
        results.append(
            ObservationResult(
                source_call_id=source if carry.source_call_id is UNSET else carry.source_call_id,
                content=_content(carry.content, entry.stdout, entry.media),
                subagent_trajectory_ref=carry.subagent_trajectory_ref,
                extra=carry.extra,
            )
        )
    return results


def _with_rests(step: Step, group: Group, number: int, before: int) -> Step:
    """The step with all that it does not tell about its entries."""
    natural = natural_turn(step, before)
    order = "".join("c" if entry.role == "tool_call" else "r" for entry in group.tools)
    plain = "".join(kind for kind, _ in order_slots(step))
    place = Place(number, group.turn, None if order == plain else order)
    told = step_entries(step, place)
    fields = {} if group.head is None else untold_fields(told[0], group.head)
    if group.turn != natural:
        fields["step"] = group.turn
    head = Rest(fields, absent=group.head is None, order=place.order)
    calls: dict[int, Rest] = {}
    results: dict[int, Rest] = {}
    tools = zip(order_slots(step, place.order), told[1:], group.tools, strict=True)
    for (kind, index), written, entry in tools:
        held = calls if kind == "c" else results
        held[index] = Rest(untold_fields(written, entry))
    rests = Rests(
        head,
        tuple(calls[index] for index in range(len(calls))),
        tuple(results[index] for index in range(len(results))),
    )
    return join_step(step, rests)
