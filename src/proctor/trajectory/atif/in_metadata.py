"""What an entry has no field for, of an ATIF step: it travels in `metadata["atif"]`.

Ids of calls, metrics, reasoning, `extra`, the parts of content; and on the first entry what the
document says of itself. It is read as a stranger's: what does not have one of the shapes below is
left where it is. It adds to what the fields of the entry say and cannot change it (see steps.py).
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from proctor.trajectory.atif.model import (
    Agent,
    Atif,
    Content,
    ContentPart,
    FinalMetrics,
    Metrics,
    Observation,
    SubagentRef,
    ToolCall,
)
from proctor.trajectory.entry import Entry, Object

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
    """Only ever without results, likewise."""
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
    """Absent when it is the call that the order of the entries tells."""
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
    """The id of a call that has none of its own: the step from 1, the call in it from 0."""
    return f"call_{step}_{index + 1}"


def with_carry(entry: Entry, carry: msgspec.Struct) -> Entry:
    """The entry with a carry in its metadata; unchanged when there is nothing to carry."""
    held = _json_of(carry)
    if not held:
        return entry
    return msgspec.structs.replace(entry, metadata={ATIF_KEY: held})


def _json_of(carry: msgspec.Struct) -> Object:
    # By way of text, so that it is what a reader of the file will find: to_builtins leaves tuples.
    held: Object = msgspec.json.decode(msgspec.json.encode(carry))
    return held


def find_carry[T: msgspec.Struct](entry: Entry, kind: type[T]) -> T:
    """The carry of an entry; an empty one when there is none that can be used."""
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
    """The call that each result belongs to, as far as the order of the entries tells.

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
