"""A sealed trial as a sample of an Inspect log.

The task is the sample's id, the attempt its epoch. The trace becomes messages; events are not
written. A reward is the score `reward`, next to the other scalar values of the breakdown; a trial
that is not scored has no scores, and an error with the reason. Everything that is sealed, except
the bytes of evidence, is in the sample's metadata under `proctor`, with what the messages cannot
say of the trace's entries.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec

from proctor.exchange.exporting import ReadTrace, SelectedTrial
from proctor.exchange.inspect.sample import ENTRIES, PROCTOR, Sample, note_entries, read_entries
from proctor.record.cost import CostRecord
from proctor.record.ids import LONGEST, make_id
from proctor.record.model import TrialRecord
from proctor.record.reasons import outcome_of
from proctor.traces.atif.carry import ATIF_KEY, pair_results
from proctor.traces.entry import Entry, Object

REWARD = "reward"
"""Name of the scorer."""
_OWN_ROLES = ("system", "user")


# Keys under which harnesses and ATIF store call ids and reasoning.
_CONVERSATION = "conversation"
_IDS = ("tool_call_id", "source_call_id", "call_id")
_THOUGHTS = ("reasoning_content", "thinking")


class Placed(NamedTuple):
    """An entry with its index in the trace."""

    at: int
    entry: Entry


class Call(NamedTuple):
    """A tool call."""

    call: Placed
    call_id: str
    """The id in the trace, else one made from the index."""


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


def group_chats(entries: Sequence[Entry]) -> tuple[list[Chat], list[Placed | Answer]]:
    """Group a trace into turns, and the inputs after the last; every entry is in one of them."""
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
            pending.append(Answer(placed, call.call_id if call else find_call_id(entry)))
        else:
            pending.append(placed)
    return turns, pending


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


def _beside(entry: Entry) -> Object:
    """A harness's metadata of an entry, at any depth."""
    metadata = entry.metadata or {}
    for key in (ATIF_KEY, _CONVERSATION):
        if isinstance(held := metadata.get(key), dict):
            return held
    return metadata


@dataclass(slots=True)
class _Written:
    """Messages so far, and the index of the entry that each entry read from them stands for."""

    model: str
    messages: list[Object] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def add_input(self, each: Placed | Answer) -> None:
        if isinstance(each, Placed):
            entry = each.entry
            role = entry.role if entry.role in _OWN_ROLES else "user"
            self._add({"role": role, "content": entry.content or ""}, each.at)
            return
        entry = each.result.entry
        printed = entry.output_summary if entry.stdout is None else entry.stdout
        content = "\n".join(text for text in (printed, entry.stderr) if text)
        body: Object = {"role": "tool", "content": content, "tool_call_id": each.call_id}
        self._add({**body, "function": entry.tool_name}, each.result.at)

    def add_turn(self, chat: Chat) -> None:
        said = chat.said
        calls = [
            {
                "id": call.call_id,
                "function": call.call.entry.tool_name or "",
                "arguments": _arguments_of(call.call.entry),
                "type": "function",
            }
            for call in chat.calls
        ]
        body: Object = {"role": "assistant", "content": "", "source": "generate"}
        if said is not None:
            body["content"] = _content_of(said.entry)
            # Also what makes a turn without words an entry when it is read.
            body["model"] = find_model(said.entry) or self.model
        places = [said.at] if said is not None else []
        self._add(
            {**body, "tool_calls": calls or None}, *places, *(call.call.at for call in chat.calls)
        )

    def _add(self, body: Object, *places: int) -> None:
        known = {key: value for key, value in body.items() if value is not None}
        self.messages.append({"id": f"message-{len(self.messages) + 1}", **known})
        self.places.extend(places)


def _arguments_of(entry: Entry) -> Object:
    if entry.arguments is not None:
        return entry.arguments
    return {"command": entry.command} if entry.command else {}


def _content_of(entry: Entry) -> str | list[Object]:
    thought = find_thought(entry)
    if thought is None:
        return entry.content or ""
    parts: list[Object] = [{"type": "reasoning", "reasoning": thought}]
    return [*parts, {"type": "text", "text": entry.content or ""}]


def make_sample_id(task: str) -> str:
    """The id of a task's sample: the task, unless that would be a strange path in the archive."""
    path = PurePosixPath(task)
    plain = task.isprintable() and len(task) <= LONGEST and "\\" not in task
    is_inside = not path.is_absolute() and ".." not in path.parts
    return task if plain and is_inside else make_id(task)


def make_sample(
    trial: SelectedTrial, document: Object, traces: Sequence[ReadTrace], epoch: int
) -> Object:
    """Make the sample of a trial."""
    record = trial.record
    entries = [entry for trace in traces for entry in trace.entries]
    written = _Written(record.agent.model)
    turns, rest = group_chats(entries)
    for chat in turns:
        for each in chat.inputs:
            written.add_input(each)
        written.add_turn(chat)
    for each in rest:
        written.add_input(each)
    said = {"id": 1, "epoch": 1, "messages": written.messages}
    # ENTRIES: a trial without a trace has no messages, rather than its input.
    said["metadata"] = {PROCTOR: {ENTRIES: None}}
    read = read_entries(msgspec.convert(said, Sample), [])
    answers = [each for each in written.messages if each["role"] == "assistant"]
    began, ended = _find_times(record)
    return {
        "id": make_sample_id(record.task.task_id),
        "epoch": epoch,
        "input": record.inputs.instruction,
        "target": "",
        "messages": written.messages,
        "output": _make_output(record, answers),
        **_make_outcome(trial),
        "metadata": {
            "trial": trial.name,
            PROCTOR: {**document, ENTRIES: note_entries(entries, written.places, read)},
        },
        "model_usage": _make_usage(record.cost, record.agent.model),
        "started_at": began.isoformat(),
        "completed_at": ended.isoformat(),
        "total_time": record.timing.total_seconds,
        "uuid": trial.row.record[:22] if trial.row.record else make_id(trial.name),
    }


def _find_times(record: TrialRecord) -> tuple[datetime, datetime]:
    """When a trial began and ended; the same if its record has impossible figures."""
    ended = record.timestamp
    ended = ended if ended.tzinfo else ended.replace(tzinfo=UTC)
    try:
        return ended - timedelta(seconds=record.timing.total_seconds), ended
    except OverflowError:
        return ended, ended


def _make_output(record: TrialRecord, answers: Sequence[Object]) -> Object:
    if not answers:
        return {"model": record.agent.model, "choices": []}
    last = answers[-1]
    reason = "tool_calls" if last.get("tool_calls") else "stop"
    return {
        "model": record.agent.model,
        "choices": [{"message": last, "stop_reason": reason}],
        "completion": last["content"] if isinstance(last["content"], str) else "",
    }


def _make_outcome(trial: SelectedTrial) -> Object:
    """The scores of a trial, or the error that says why it has none."""
    evaluation, reward = trial.record.evaluation, trial.row.reward
    if reward is None:
        said = [trial.row.reason_code or outcome_of(trial.row), *evaluation.validity.errors]
        return {"error": {"message": ": ".join(said), "traceback": "", "traceback_ansi": ""}}
    others = {
        name: {"value": value}
        for name, value in (evaluation.breakdown or {}).items()
        if name != REWARD
        and isinstance(value, str | int | float)
        and (not isinstance(value, float) or math.isfinite(value))
    }
    return {"scores": {REWARD: {"value": reward}, **others}}


def _make_usage(cost: CostRecord | None, model: str) -> Object:
    """The tokens in Inspect's convention, whose input tokens do not contain cached ones."""
    if cost is None or cost.tokens_in is None or cost.tokens_out is None:
        return {}
    read, write = cost.cache_read_tokens, cost.cache_write_tokens
    used = {
        "input_tokens": cost.tokens_in - (read or 0) - (write or 0),
        "output_tokens": cost.tokens_out,
        "total_tokens": cost.tokens_in + cost.tokens_out,
        "input_tokens_cache_read": read,
        "input_tokens_cache_write": write,
        "total_cost": cost.estimated_cost_usd,
    }
    return {model: {key: value for key, value in used.items() if value is not None}}
