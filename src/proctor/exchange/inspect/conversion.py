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
from typing import Any

from proctor.exchange.chats import Answer, Chat, Placed, find_model, find_thought, group_chats
from proctor.exchange.exporting import ReadTrace, SelectedTrial
from proctor.exchange.inspect.messages import ENTRIES, note_entries, read_entries
from proctor.exchange.inspect.sample import PROCTOR, Sample
from proctor.record.cost import CostRecord
from proctor.record.ids import LONGEST, make_id
from proctor.record.model import TrialRecord
from proctor.record.reasons import outcome_of
from proctor.traces.entry import Entry, Object

REWARD = "reward"
"""Name of the scorer."""
_OWN_ROLES = ("system", "user")


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
    chats = group_chats(entries)
    for chat in chats.turns:
        for each in chat.inputs:
            written.add_input(each)
        written.add_turn(chat)
    for each in chats.rest:
        written.add_input(each)
    read = read_entries(Sample({"messages": written.messages}))
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
        if name != REWARD and isinstance(value, str | int | float) and _is_finite(value)
    }
    return {"scores": {REWARD: {"value": reward}, **others}}


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


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
