"""The messages of a sample as entries of a trace.

The messages are the conversation as it was when the sample ended; a sample without any, such as one
that an error ended, has those of its last call of a model. Times, tokens and models come from the
events with the same ids. Texts that a log keeps apart, as `attachment://HASH`, are put in place.
Images and other parts that are no text are named in the metadata; the sample among the evidence has
them.

`restore_entries` applies what `proctor export` noted next to the messages, so that a trace that was
exported comes back entry by entry.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from proctor.errors import InspectError
from proctor.exchange.foreign_values import find_text, whole_text
from proctor.exchange.inspect.archive import LARGEST_MEMBER
from proctor.exchange.inspect.sample import Sample, find_object, read_usage
from proctor.record.fields import check_json
from proctor.sentence import count_of, shown
from proctor.traces.entry import KEYS, Entry, Object
from proctor.traces.turn import ToolCall, ToolResult, Turn, turns_to_entries

_PROTOCOLS: Final = ("attachment://", "tc://")
_MOST_MESSAGES: Final = 200_000
_UNFIT: Final = (
    *(msgspec.ValidationError, ValueError, TypeError, KeyError),
    *(OverflowError, RecursionError),
)
ENTRIES: Final = "entries"
"""Key of what `proctor export` notes about the entries."""
PLACE: Final = "at"
"""Key of the index of an entry in the trace that was exported."""


@dataclass(slots=True)
class _Texts:
    """Puts attachments in place, up to a limit: a text may be referred to any number of times.

    What JSON does not have, such as NaN in the arguments of a call, becomes null.
    """

    attachments: Object
    left: int = LARGEST_MEMBER

    def resolve(self, value: Any) -> Any:
        """The value with texts in place of references to them."""
        if isinstance(value, str):
            return self._resolve_text(value)
        if isinstance(value, list):
            return [self.resolve(each) for each in value]
        if isinstance(value, dict):
            return {whole_text(key): self.resolve(each) for key, each in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value

    def _resolve_text(self, text: str) -> str:
        for protocol in _PROTOCOLS:
            held = self.attachments.get(text.removeprefix(protocol))
            if text.startswith(protocol) and isinstance(held, str):
                self.left -= len(held)
                text = held
                break
        if self.left < 0:
            raise InspectError(
                f"its attachments are more than {LARGEST_MEMBER:,} characters where they are used"
            )
        return whole_text(text)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the events say of messages and tool calls, by id."""

    answers: dict[str, Object] = field(default_factory=dict)
    """Calls of a model, by the id of the message that it gave."""
    tools: dict[str, Object] = field(default_factory=dict)
    """Tool events, by the id of the call."""


def read_entries(sample: Sample) -> list[Entry]:
    """The trace of a sample; empty if it has no messages."""
    attachments = find_object(sample.value.get("attachments"))
    texts = _Texts(attachments)
    seen = _index_events(sample)
    turns = [
        turn
        for number, message in enumerate(_find_messages(sample), 1)
        if (turn := _make_turn(number, texts.resolve(message), seen)) is not None
    ]
    entries = list(turns_to_entries(turns))
    noted = sample.own.get(ENTRIES)
    return entries if noted is None else restore_entries(entries, noted, sample.notes)


def read_answer(sample: Sample) -> str | None:
    """The text that the sample ended with, which was scored; None if there is none."""
    texts = _Texts(find_object(sample.value.get("attachments")))
    output = find_object(sample.value.get("output"))
    answer = texts.resolve(find_text(output.get("completion")))
    if answer is None:
        answer, _, _ = _read_content(texts.resolve(_find_answer({"output": output}).get("content")))
    return find_text(answer)


def _find_messages(sample: Sample) -> list[Object]:
    given = sample.value.get("messages")
    if given is not None and not isinstance(given, list):
        sample.notes.append(f"messages is {shown(given)}; expected a list")
    messages = given if isinstance(given, list) else []
    # A trial that was exported without a trace has none, and says so.
    if not messages and ENTRIES not in sample.own:
        messages = _find_last_exchange(sample)
    found = [each for each in messages[:_MOST_MESSAGES] if isinstance(each, dict)]
    if len(found) < len(messages):
        left = count_of(len(messages) - len(found), "message")
        sample.notes.append(f"{left} could not be read; the sample among the evidence has all")
    return found


def _find_last_exchange(sample: Sample) -> list[Any]:
    """The messages of the last call of a model, and its answer."""
    called = [event for event in sample.events if event.get("event") == "model"]
    if not called:
        given = sample.value.get("input")
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return given if isinstance(given, list) else []
    sample.notes.append("the trace is the last call of a model: the sample has no messages")
    event = called[-1]
    given = event.get("input")
    messages = given if isinstance(given, list) and given else _expand_input(sample, event)
    answer = _find_answer(event)
    return [*messages, answer] if answer else messages


def _expand_input(sample: Sample, event: Object) -> list[Any]:
    """The input of a call that refers to a pool of messages, by ranges of indexes."""
    pool = find_object(sample.value.get("events_data")).get("messages")
    pool = sample.value.get("message_pool") if pool is None else pool
    ranges = event.get("input_refs")
    if not isinstance(pool, list) or not isinstance(ranges, list):
        return []
    found: list[Any] = []
    for each in ranges:
        if isinstance(each, list) and len(each) == 2 and all(type(end) is int for end in each):
            found += pool[max(0, each[0]) : max(0, each[1])]
        if len(found) > _MOST_MESSAGES:
            raise InspectError(f"a call of a model has more than {_MOST_MESSAGES:,} messages")
    return found


def _find_answer(event: Object) -> Object:
    choices = find_object(event.get("output")).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return find_object(find_object(first).get("message"))


def _index_events(sample: Sample) -> _Seen:
    seen = _Seen()
    for event in sample.events:
        if event.get("event") == "model" and isinstance(name := _find_answer(event).get("id"), str):
            seen.answers[name] = event
        elif event.get("event") == "tool" and isinstance(name := event.get("id"), str):
            seen.tools[name] = event
    return seen


def _make_turn(number: int, message: Object, seen: _Seen) -> Turn | None:
    role = message.get("role")
    if not isinstance(role, str):
        return None
    text, thinking, others = _read_content(message.get("content"))
    rest: Object = {"omitted": others} if others else {}
    if isinstance(metadata := message.get("metadata"), dict) and metadata:
        rest["metadata"] = metadata
    if role == "tool":
        return _make_result(number, message, text, rest, seen)
    if role != "assistant":
        return Turn(line=number, role=role, text=text, thinking=thinking, rest=rest)
    event = seen.answers.get(str(message.get("id")), {})
    output = find_object(event.get("output"))
    model = message.get("model") or event.get("model")
    if isinstance(model, str) and model:
        rest["model_name"] = model
    return Turn(
        line=number,
        role=role,
        text=text,
        thinking=thinking,
        calls=tuple(_read_calls(message.get("tool_calls"))),
        timestamp=_find_time(event),
        usage=_count_tokens(find_object(output.get("usage"))),
        rest=rest,
    )


def _read_content(content: object) -> tuple[str, str | None, list[str]]:
    """The text of a message, its reasoning, and the types of other parts."""
    if isinstance(content, str):
        return content, None, []
    parts = (
        [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    )
    texts = [each["text"] for each in parts if isinstance(each.get("text"), str)]
    thoughts = [each["reasoning"] for each in parts if isinstance(each.get("reasoning"), str)]
    others = [shown(each.get("type")).strip('"') for each in parts if not _is_text(each)]
    return "\n".join(texts), "\n".join(thoughts) if thoughts else None, others


def _is_text(part: Object) -> bool:
    return isinstance(part.get("text"), str) or isinstance(part.get("reasoning"), str)


def _read_calls(given: object) -> Iterator[ToolCall]:
    for call in given if isinstance(given, list) else ():
        if not isinstance(call, dict):
            continue
        arguments, name, call_id = call.get("arguments"), call.get("function"), call.get("id")
        is_object = isinstance(arguments, dict)
        parse_error = call.get("parse_error")
        yield ToolCall(
            name=name if isinstance(name, str) else "",
            arguments=arguments if isinstance(arguments, dict) else {},
            unparsed=None if is_object or arguments is None else shown(arguments),
            call_id=call_id if isinstance(call_id, str) else None,
            rest={"parse_error": parse_error} if isinstance(parse_error, str) else {},
        )


def _make_result(number: int, message: Object, text: str, rest: Object, seen: _Seen) -> Turn:
    call_id, name, error = (message.get(key) for key in ("tool_call_id", "function", "error"))
    if isinstance(error, dict):
        rest["error"] = error
    result = ToolResult(
        text=text,
        name=name if isinstance(name, str) else None,
        call_id=call_id if isinstance(call_id, str) else None,
        is_error=True if isinstance(error, dict) else None,
        rest=rest,
    )
    event = seen.tools.get(str(call_id), {})
    return Turn(line=number, role="tool", results=(result,), timestamp=_find_time(event))


def _find_time(event: Object) -> str | None:
    times = (event.get(key) for key in ("completed", "timestamp"))
    return next((time for time in times if isinstance(time, str) and time), None)


def _count_tokens(given: Object) -> Object | None:
    """The tokens of one answer, in the form that traces have."""
    usage = read_usage(given) if given else None
    if usage is None:
        return None
    counts = {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
    }
    return {key: count for key, count in counts.items() if count is not None}


def note_entries(
    entries: Sequence[Entry], places: Sequence[int], written: Sequence[Entry]
) -> list[Object]:
    """Note for each entry that was written how the original differs, and where it was."""
    return [
        {PLACE: place, **_differ(msgspec.to_builtins(entries[place]), msgspec.to_builtins(other))}
        for place, other in zip(places, written, strict=True)
    ]


def _differ(original: Object, written: Object) -> Object:
    return {key: original.get(key) for key in KEYS if original.get(key) != written.get(key)}


def restore_entries(entries: list[Entry], noted: Any, notes: list[str]) -> list[Entry]:
    """The entries as they were before they were exported; unchanged if the notes do not fit."""
    try:
        found = msgspec.convert(noted, list[dict[str, Any]])
        pairs = zip(entries, found, strict=True)
        placed = [
            (each[PLACE], msgspec.convert(_apply(entry, each), Entry)) for entry, each in pairs
        ]
        check_json(noted)
        return [entry for _, entry in sorted(placed, key=lambda pair: int(pair[0]))]
    except _UNFIT:
        notes.append("the noted entries do not fit the messages; the trace is that of the messages")
        return entries


def _apply(entry: Entry, noted: Object) -> Object:
    changed = {key: value for key, value in noted.items() if key != PLACE}
    merged = msgspec.to_builtins(entry) | changed
    return {key: value for key, value in merged.items() if value is not None}
