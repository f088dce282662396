"""aec-bench's turns of a trace, its batches, and how it reads its model's answer.

Known losses, kept: of a trajectory, commands, stderr and all but the first text of a step; of a
conversation, system messages and a user's text blocks. `tool_calls: null`, at which it crashes, is
read as no calls. Turns that were not asked for and second labels of one turn are kept, as it keeps
them. What makes it crash (a list in a fence, `classifications: null`) is an unreadable answer here.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from proctor.traces.entry import Entry, Object
from proctor.traces.labels import LABELS

BATCH_SIZE: Final = 5
CONTEXT_SIZE: Final = 3
_UNKNOWN: Final = "unknown"


class AnswerError(ValueError):
    """A model's answer that cannot be read as labels."""


class CompatCall(msgspec.Struct, frozen=True):
    """A tool call, without its command."""

    tool_name: str
    arguments: Object


class CompatResult(msgspec.Struct, frozen=True):
    """A tool's result, without its stderr."""

    tool_name: str
    output: str
    is_error: bool


class CompatTurn(msgspec.Struct, frozen=True):
    """One turn; those of the assistant are classified."""

    turn_index: int
    """Running number from 0; not the step."""
    role: str
    content: str
    tool_calls: list[CompatCall] = []
    tool_results: list[CompatResult] = []


class Batch(msgspec.Struct, frozen=True):
    """What one call asks about."""

    classify: list[int]
    context: list[int]
    """Earlier turns that go along without a question."""


def plan_batches(turns: Iterable[CompatTurn], size: int = BATCH_SIZE) -> list[Batch]:
    """The assistant's turns in batches, each with the three turns before it."""
    asked = [turn.turn_index for turn in turns if turn.role == "assistant"]
    return [
        Batch(asked[at : at + size], asked[max(0, at - CONTEXT_SIZE) : at])
        for at in range(0, len(asked), size)
    ]


# Of a trajectory


def build_from_entries(entries: Iterable[Entry]) -> list[CompatTurn]:
    """The turns of a trajectory: one for every step, whoever speaks in it."""
    steps: dict[int, list[Entry]] = {}
    for entry in entries:
        if entry.call_type != "warmup":
            steps.setdefault(entry.step, []).append(entry)
    turns: list[CompatTurn] = []
    for entry in steps.pop(0, []):
        if entry.role in ("system", "user"):
            turns.append(CompatTurn(len(turns), entry.role, entry.content or ""))
    for step in sorted(steps):
        turns.append(_turn_of_step(len(turns), steps[step]))
    return turns


def _turn_of_step(index: int, entries: Sequence[Entry]) -> CompatTurn:
    texts = [entry.content or "" for entry in entries if entry.role == "assistant"]
    return CompatTurn(
        index,
        "assistant",
        texts[0] if texts else "",
        [
            CompatCall(entry.tool_name or _UNKNOWN, entry.arguments or {})
            for entry in entries
            if entry.role == "tool_call"
        ],
        [
            CompatResult(entry.tool_name or _UNKNOWN, entry.stdout or "", bool(entry.exit_code))
            for entry in entries
            if entry.role == "tool_result"
        ],
    )


# Of a conversation


def build_from_rows(rows: Sequence[object]) -> list[CompatTurn]:
    """The turns of a conversation, read in the dialect of the first row that shows one."""
    objects = [row for row in rows if isinstance(row, dict)]
    building = _Building()
    build = {
        "canonical": building.add_canonical,
        "openai": building.add_openai,
        "anthropic": building.add_anthropic,
    }[_find_dialect(objects)]
    for row in objects:
        build(row)
    return building.turns


def _find_dialect(rows: Iterable[Object]) -> str:
    for row in rows:
        content = row.get("content")
        if "event" in row:
            return "canonical"
        if row.get("role") == "tool" or "tool_calls" in row:
            return "openai"
        if isinstance(content, list) and content and "type" in _object(content[0]):
            return "anthropic"
    return "anthropic"


class _Building:
    """Turns as far as they have been read."""

    def __init__(self) -> None:
        self.turns: list[CompatTurn] = []
        self._names: dict[str, str] = {}

    def add_canonical(self, row: Object) -> None:
        role, name = _text(row.get("role")), row.get("tool_name")
        called = _text(name) or _UNKNOWN
        if role == "tool":
            self._add_result(called, _text(row.get("content")))
        elif role == "assistant" and row.get("event") == "tool_call":
            self._add(role, _text(row.get("content")), [CompatCall(called, {})])
        else:
            self._add(role, _text(row.get("content")))

    def add_anthropic(self, row: Object) -> None:
        role, content = row.get("role"), row.get("content")
        blocks = [_object(block) for block in content] if isinstance(content, list) else []
        if role == "user" and isinstance(content, list):
            self._replace_results(blocks)
        elif role == "user":
            self._add("user", _text(content))
        elif role == "assistant":
            texts = [_text(block.get("text")) for block in blocks if block.get("type") == "text"]
            calls = [
                CompatCall(_text(block.get("name")) or _UNKNOWN, _object(block.get("input")))
                for block in blocks
                if block.get("type") == "tool_use"
            ]
            self._add("assistant", "\n".join(texts) if blocks else _text(content), calls)

    def add_openai(self, row: Object) -> None:
        match row.get("role"):
            case "tool":
                called = self._names.get(_text(row.get("tool_call_id")), _UNKNOWN)
                self._add_result(called, _text(row.get("content")))
            case "user":
                self._add("user", _text(row.get("content")))
            case "assistant":
                calls = [_object(call) for call in row.get("tool_calls") or ()]
                for call in calls:
                    self._names[_text(call.get("id"))] = _call_of(call).tool_name
                self._add(
                    "assistant", _text(row.get("content")), [_call_of(call) for call in calls]
                )

    def _add(self, role: str, content: str, calls: Sequence[CompatCall] = ()) -> None:
        self.turns.append(CompatTurn(len(self.turns), role, content, list(calls), []))

    def _add_result(self, name: str, output: str) -> None:
        before = self._find_assistant()
        if before is not None:
            before.tool_results.append(CompatResult(name, output, is_error=False))

    def _replace_results(self, blocks: Sequence[Object]) -> None:
        results = [block for block in blocks if block.get("type") == "tool_result"]
        before = self._find_assistant()
        if results and before is not None:
            before.tool_results[:] = [
                CompatResult("bash", _words(one.get("content")), bool(one.get("is_error")))
                for one in results
            ]

    def _find_assistant(self) -> CompatTurn | None:
        return next((turn for turn in reversed(self.turns) if turn.role == "assistant"), None)


def _call_of(call: Object) -> CompatCall:
    function = _object(call.get("function"))
    return CompatCall(
        _text(function.get("name")) or _UNKNOWN, _arguments(function.get("arguments"))
    )


def _arguments(given: object) -> Object:
    if isinstance(given, dict):
        return given
    try:
        found = json.loads(_text(given) or "{}")
    except (ValueError, RecursionError):
        return {"raw": given}
    return found if isinstance(found, dict) else {"raw": given}


def _words(content: object) -> str:
    if not isinstance(content, list):
        return _text(content)
    return "\n".join(_text(_object(part).get("text")) for part in content)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_FENCED = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL)
_BRACED = re.compile(r"\{.*\}", re.DOTALL)
_USUAL_CONFIDENCE = 0.5


class CompatLabel(msgspec.Struct, frozen=True):
    """One label of one turn, with what the model says of it."""

    turn_index: int
    bond_type: str
    confidence: float
    rationale: str


def parse_answer(answer: str, expected: Iterable[int]) -> list[CompatLabel]:
    """The labels in an answer, by turn.

    Raises:
        AnswerError: it cannot be read, or a turn that was asked for is not in it.
    """
    found = [label for item in _find_items(answer) if (label := _parse_item(item)) is not None]
    missing = sorted(set(expected) - {label.turn_index for label in found})
    if missing:
        named = ", ".join(map(str, missing))
        raise AnswerError(f"the answer has no label for turn {named}")
    return sorted(found, key=lambda label: label.turn_index)


def _find_items(answer: str) -> list[object]:
    fenced, braced = _FENCED.search(answer), _BRACED.search(answer)
    text = fenced[1] if fenced else braced[0] if braced else answer
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"the answer is no JSON: {error}") from error
    items = document.get("classifications", []) if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise AnswerError("the answer is JSON without a list `classifications`")
    return items


def _parse_item(item: object) -> CompatLabel | None:
    """One label; None for an item that is dropped."""
    if not isinstance(item, dict):
        return None
    try:
        label = str(item["bond_type"]).lower()
        index = _whole(item["turn_index"])
        confidence = float(item.get("confidence", _USUAL_CONFIDENCE))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if label not in LABELS:
        return None
    # Written so that nan becomes 0, as it does there.
    bounded = max(0.0, min(1.0, confidence)) if confidence == confidence else 0.0
    return CompatLabel(index, label, bounded, str(item.get("rationale", "")))


def _whole(value: object) -> int:
    if isinstance(value, str) or type(value) is int:
        return int(value)
    raise ValueError(f"{value!r} is no whole number")
