"""An ATIF document to trajectory entries and back, with a list of what did not survive.

    to_entries(atif)       a message is an entry, then each tool call and its results
    from_entries(entries)  the other way, for the entries of any harness

Agent steps count 1, 2, 3, … as the turns of the entries; everything before the first is 0, and what
a user or the system says in between has the number of the turn before it. Entries become a step as
a message with the calls and results that go with it, and every step passes harbor's rules, whatever
the entries say. What one side has no field for is carried along (carry.py), so that most documents
come back whole. The list of losses is made by converting back and comparing.

Nothing is read or written here. Embedded subagents are carried whole, not as entries.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET

from proctor.errors import TraceError
from proctor.traces.atif.carry import (
    CallCarry,
    DocumentCarry,
    HeadCarry,
    Place,
    Rest,
    Rests,
    ResultCarry,
    call_id,
    find_restored,
    flatten,
    join_step,
    list_changed_fields,
    natural_turn,
    order_slots,
    pair_results,
    read_carry,
    split_document,
    step_entries,
    with_document,
    write_entries,
)
from proctor.traces.atif.model import (
    UNKNOWN_AGENT,
    Agent,
    Atif,
    Content,
    ContentPart,
    Observation,
    ObservationResult,
    Step,
    ToolCall,
)
from proctor.traces.atif.rules import (
    find_problems,
    is_timestamp,
    list_step_problems,
    to_written_version,
    without_audio,
)
from proctor.traces.entry import Entry
from proctor.traces.loss import Loss, list_losses

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
    if not any(list_step_problems(step, "")):
        if write_entries(step, number, before) == group.entries:
            return step
        joined = _with_rests(step, group, number, before)
        if find_restored(joined, number, before) == group.entries:
            return joined
    step = _build(group, number, carried=False)
    return _with_rests(step, group, number, before)


def _build(group: Group, number: int, *, carried: bool) -> Step:
    head = group.head or Entry(role="assistant", step=group.turn)
    carry = read_carry(head, HeadCarry) if carried else HeadCarry()
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
        carry = read_carry(entry, CallCarry) if carried else CallCarry()
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
        carry = read_carry(entry, ResultCarry) if carried else ResultCarry()
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
    """The step with all that does not follow from its entries."""
    natural = natural_turn(step, before)
    order = "".join("c" if entry.role == "tool_call" else "r" for entry in group.tools)
    plain = "".join(kind for kind, _ in order_slots(step))
    place = Place(number, group.turn, None if order == plain else order)
    derived = step_entries(step, place)
    fields = {} if group.head is None else list_changed_fields(derived[0], group.head)
    if group.turn != natural:
        fields["step"] = group.turn
    head = Rest(fields, absent=group.head is None, order=place.order)
    calls: dict[int, Rest] = {}
    results: dict[int, Rest] = {}
    tools = zip(order_slots(step, place.order), derived[1:], group.tools, strict=True)
    for (kind, index), written, entry in tools:
        held = calls if kind == "c" else results
        held[index] = Rest(list_changed_fields(written, entry))
    rests = Rests(
        head,
        tuple(calls[index] for index in range(len(calls))),
        tuple(results[index] for index in range(len(results))),
    )
    return join_step(step, rests)


def to_entries(atif: Atif) -> tuple[list[Entry], list[Loss]]:
    """The entries of a document, no header among them, and what the way back would not bring.

    Raises:
        TraceError: the document is nested too deeply, or holds half of a surrogate pair.
    """
    try:
        entries = _write(atif)
        written, losses = to_written_version(atif)
        back = _builtins(_read(entries)) if entries else {}
        losses += list_losses(_builtins(written), back)
    except (RecursionError, UnicodeEncodeError) as error:
        raise TraceError(f"the ATIF document cannot be converted: {_blame(error)}") from error
    return entries, losses


def from_entries(
    entries: Sequence[Entry], *, agent: Agent | None = None, session_id: str | None = None
) -> tuple[Atif, list[Loss]]:
    """The entries as an ATIF v1.7 document that harbor's validator takes, and what it cannot hold.

    Agent and session given here go before what the entries carry; an agent that nobody names is
    called unknown. Losses name fields of the entries, as in `entries[3].exit_code`.

    Raises:
        TraceError: there are no entries, they are nested too deeply, or hold half of a surrogate
            pair.
    """
    if not entries:
        raise TraceError("there are no entries; expected at least one, as ATIF needs a step")
    try:
        atif = _read(entries, agent, session_id)
        losses = list(list_losses(_builtins(entries), _builtins(_write(atif)), "entries"))
    except (RecursionError, UnicodeEncodeError) as error:
        raise TraceError(f"the entries cannot be converted: {_blame(error)}") from error
    return atif, losses


def _blame(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply; expected JSON of some hundred levels at most"
    return "half of a surrogate pair in a text; expected whole characters"


def _builtins(value: object) -> Any:
    return msgspec.to_builtins(value)


def _write(atif: Atif) -> list[Entry]:
    entries: list[Entry] = []
    made: list[Entry] = []
    for number, step in enumerate(atif.steps, 1):
        made = _write_step(step, number, made)
        entries += made
    if entries:
        entries[0] = with_document(entries[0], _document_carry(atif))
    return entries


def _write_step(step: Step, number: int, previous: list[Entry]) -> list[Entry]:
    """The entries of a step: those it was made from, if it can only have been made from them."""
    before = previous[0].step if previous else 0
    restored = find_restored(step, number, before)
    if restored is not None:
        groups = group_entries([*previous, *restored])[len(group_entries(previous)) :]
        # Only if these entries give exactly this step again, keys in their order: a forged `extra`
        # must change nothing.
        again = [group_step(group, number, before) for group in groups]
        if msgspec.json.encode(again) == msgspec.json.encode([step]):
            return restored
    return write_entries(step, number, before)


def _document_carry(atif: Atif) -> DocumentCarry:
    return DocumentCarry(
        session_id=atif.session_id,
        trajectory_id=atif.trajectory_id,
        agent=None if atif.agent == UNKNOWN_AGENT else atif.agent,
        notes=atif.notes,
        final_metrics=atif.final_metrics,
        continued_trajectory_ref=atif.continued_trajectory_ref,
        extra=atif.extra,
        subagent_trajectories=atif.subagent_trajectories,
    )


def _read(
    entries: Sequence[Entry], agent: Agent | None = None, session_id: str | None = None
) -> Atif:
    first, carry = split_document(entries[0])
    steps: list[Step] = []
    turn = 0
    for group in group_entries([first, *entries[1:]]):
        steps.append(group_step(group, len(steps) + 1, turn))
        turn = group.turn
    document = _document(carry, tuple(steps))
    if any(find_problems(document)):
        document = _document(DocumentCarry(), tuple(steps))
    return msgspec.structs.replace(
        document, agent=agent or document.agent, session_id=session_id or document.session_id
    )


def _document(carry: DocumentCarry, steps: tuple[Step, ...]) -> Atif:
    atif = Atif(
        session_id=carry.session_id,
        trajectory_id=carry.trajectory_id,
        agent=carry.agent or UNKNOWN_AGENT,
        steps=steps,
        notes=carry.notes,
        final_metrics=carry.final_metrics,
        continued_trajectory_ref=carry.continued_trajectory_ref,
        extra=carry.extra,
        subagent_trajectories=carry.subagent_trajectories,
    )
    return to_written_version(atif)[0]
