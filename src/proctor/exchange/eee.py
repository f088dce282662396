"""Export to Every Eval Ever's store, schema 0.3.0: an aggregate, and one row per trial.

    data/COLLECTION/DEVELOPER/MODEL/UUID.json and UUID_samples.jsonl

The trials of one experiment, dataset, agent and model make one aggregate. The schema requires a
score in every row, and "not scored" is not 0, so such a trial has no row. The aggregate counts it,
but its mean is over scored trials only.

The schema has only texts: tool arguments of other types are written as JSON, and what has no
field goes into `metadata`, where every value is a text. The loss report is made by reading the
written rows back, and counts the step of a message as a reader would.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from proctor import __version__
from proctor.contained import create_below
from proctor.digest import sha256_file, sha256_hex
from proctor.exchange.chats import Answer, Chat, Placed, find_thought, flatten_entry, group_chats
from proctor.exchange.exporting import (
    NAME,
    Exported,
    ReadTrace,
    Report,
    SelectedTrial,
    Selection,
    find_at,
    is_uncounted,
    list_withheld,
    new_directory,
    put_at,
    read_traces,
    read_trials,
    report_withheld,
    writable,
)
from proctor.record.cost import CostRecord
from proctor.record.ids import make_id
from proctor.record.reasons import NO_NUMBER, NOT_SCORED, outcome_of
from proctor.reward.metric import mean
from proctor.traces.entry import Object
from proctor.traces.loss import Loss, list_losses

VERSION = "0.3.0"
"""Version of the schema."""
DIGEST = "record_sha256"
METADATA = {
    "record.trial_id": "trial_id",
    "record.experiment_id": "experiment_id",
    "record.dataset_id": "dataset_id",
    "record.timestamp": "timestamp",
    "record.task.task_revision": "task_revision",
    "record.agent.adapter": "agent",
    "record.agent.adapter_revision": "agent_version",
    "record.agent.configuration": "agent_configuration",
    "record.environment.runtime_image": "runtime_image",
    "record.environment.compute_backend": "compute_backend",
    "record.environment.tool_versions": "tool_versions",
    "record.inputs.system_prompt": "system_prompt",
    "record.outputs.agent_output": "agent_output",
    "record.evaluation.validity": "validity",
    "record.evaluation.breakdown": "reward_breakdown",
    "record.evaluation.error_taxonomy": "error_taxonomy",
    "record.timing": "timing_seconds",
    "record.cost": "cost",
    "record.completeness": "completeness",
    "findings": "findings",
    "cost_basis": "cost_basis",
    "slot": "slot",
    "source": "source",
}
"""Fields of a sealed trial, each with its key in a row's metadata."""
TEXTS = frozenset(
    {
        *("trial_id", "experiment_id", "dataset_id", "timestamp", "task_revision", "agent"),
        *("agent_version", "runtime_image", "compute_backend", "system_prompt"),
        *("completeness", "cost_basis"),
    }
)
"""The keys whose values are texts; the others are JSON."""
FULL_MARKS = 1.0
"""The reward from which an answer counts as correct."""


class Message(NamedTuple):
    """One message of a row."""

    body: Object
    part: str
    """The step of a multi-step trial."""
    said: int | None
    """Index of the entry with its content."""
    calls: tuple[int, ...] = ()
    """Indexes of its tool calls."""


def make_row(
    trial: SelectedTrial, document: Object, reward: float, messages: Sequence[Message]
) -> Object:
    """Make a row, without the fields that link it to its aggregate."""
    record = trial.record
    instruction = record.inputs.instruction
    calls = sum(len(message.calls) for message in messages)
    metadata = {
        name: as_text(value)
        for path, name in METADATA.items()
        if (value := find_at(document, path)) is not None
    }
    output = record.outputs.agent_output
    return {
        "schema_version": VERSION,
        "sample_id": record.task.task_id,
        "sample_hash": sha256_hex(instruction.encode("utf-8", "surrogatepass")),
        "interaction_type": "agentic",
        "input": {"raw": instruction, "reference": []},
        "output": None,
        "messages": [message.body for message in messages],
        "answer_attribution": [],
        "evaluation": {
            "score": reward,
            "is_correct": reward >= FULL_MARKS,
            "num_turns": len(messages) or None,
            "tool_calls_count": calls,
        },
        "token_usage": _count_tokens(record.cost),
        "performance": {"latency_ms": record.timing.total_seconds * 1000},
        "error": None if output is None else output.error_message,
        "metadata": {DIGEST: trial.row.record, **metadata},
    }


def _count_tokens(cost: CostRecord | None) -> Object | None:
    if cost is None or cost.tokens_in is None or cost.tokens_out is None:
        return None
    return {
        "input_tokens": cost.tokens_in,
        "output_tokens": cost.tokens_out,
        "total_tokens": cost.tokens_in + cost.tokens_out,
        "input_tokens_cache_read": cost.cache_read_tokens,
        "input_tokens_cache_write": cost.cache_write_tokens,
    }


def make_messages(traces: Sequence[ReadTrace]) -> list[Message]:
    """The messages of all traces of a trial, in sequence."""
    found = [message for trace in traces for message in _messages_of(trace)]
    for turn, message in enumerate(found):
        message.body["turn_idx"] = turn
    return found


def _messages_of(trace: ReadTrace) -> Iterator[Message]:
    chats = group_chats(trace.entries)
    for chat in chats.turns:
        for each in chat.inputs:
            yield _make_input(each, trace.part)
        yield _make_turn(chat, trace.part)
    for each in chats.rest:
        yield _make_input(each, trace.part)


def _make_input(each: Placed | Answer, part: str) -> Message:
    body: Object
    if isinstance(each, Placed):
        body = {"role": each.entry.role, "content": each.entry.content}
        return Message(body, part, each.at)
    entry = each.result.entry
    body = {
        "role": "tool",
        "content": entry.output_summary if entry.stdout is None else entry.stdout,
        "tool_call_id": None if each.call_id is None else [each.call_id],
    }
    return Message(body, part, each.result.at)


def _make_turn(chat: Chat, part: str) -> Message:
    said = chat.said
    body = {
        "role": "assistant",
        "content": None if said is None else said.entry.content,
        "reasoning_trace": None if said is None else find_thought(said.entry),
        "tool_calls": [
            {
                "id": call.call_id,
                "name": call.call.entry.tool_name or "",
                "arguments": _texts(call.call.entry.arguments),
            }
            for call in chat.calls
        ]
        or None,
    }
    at = None if said is None else said.at
    return Message(body, part, at, tuple(call.call.at for call in chat.calls))


def _texts(arguments: Object | None) -> dict[str, str] | None:
    if arguments is None:
        return None
    return {key: as_text(value) for key, value in arguments.items()}


def as_text(value: object) -> str:
    """Keep a text; render anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# Names that Windows or this store reserves.
_RESERVED = re.compile(r"(?i:con|prn|aux|nul|com[1-9]|lpt[1-9])(?:\..*)?|data|.*\.")
_UNKNOWN = "unknown"
_OURS = "proctor"


class Key(msgspec.Struct, frozen=True):
    """The properties that the trials of one aggregate share."""

    experiment: str
    dataset: str | None
    agent: str
    agent_version: str | None
    model: str
    library: str
    """The software that ran them."""
    library_version: str
    profile: str | None
    """The scoring rules."""


class Source(msgspec.Struct, frozen=True):
    """The ledger that the trials come from."""

    origin: str
    root: str
    """Root hash of its tree, in hex."""
    size: int
    taken: str
    """When the newest selected trial was sealed, in seconds since 1970."""


@dataclass(slots=True)
class Group:
    """The trials of one aggregate, collected so far."""

    key: Key
    source: Source
    rewards: list[float] = field(default_factory=list)
    not_scored: int = 0
    no_number: int = 0
    latest: str = ""
    """When the newest of them ran."""

    @property
    def uuid(self) -> str:
        """The same for the same trials of a ledger; formatted as version 4, which is required."""
        digest = sha256_hex(msgspec.json.encode((self.key, self.source.root)))
        parts = (digest[:8], digest[8:12], f"4{digest[13:16]}", f"8{digest[17:20]}", digest[20:32])
        return "-".join(parts)

    @property
    def folder(self) -> str:
        """Its path in the store."""
        developer, slash, model = self.key.model.partition("/")
        if not slash:
            developer, model = _UNKNOWN, developer
        parts = (self.key.experiment, developer, model.replace("/", "_"))
        return "/".join(["data", *map(_component, parts)])

    @property
    def evaluation_id(self) -> str:
        """Id of the aggregate, repeated in its rows."""
        eval_name = f"{self.key.experiment}-{self.uuid[:8]}"
        return f"{eval_name}/{self.key.model}/{self.source.taken}"

    @property
    def links(self) -> Object:
        """The fields that link a row to the aggregate."""
        return {
            "evaluation_id": self.evaluation_id,
            "model_id": self.key.model,
            "evaluation_name": self.key.dataset or self.key.experiment,
            "evaluation_result_id": f"{self.uuid}/reward",
        }


def key_of(trial: SelectedTrial) -> Key:
    """The aggregate that a trial belongs to."""
    record, entry = trial.record, trial.entry
    library = entry.source.kind if entry.source else _OURS
    versions = record.environment.tool_versions or {}
    return Key(
        experiment=record.experiment_id,
        dataset=trial.row.dataset_id,
        agent=record.agent.adapter,
        agent_version=record.agent.adapter_revision,
        model=record.agent.model,
        library=library,
        library_version=versions.get(library, _UNKNOWN),
        profile=entry.score.profile if entry.score else None,
    )


def make_aggregate(group: Group, checksum: str) -> Object:
    """Make the aggregate of a group with at least one scored trial."""
    key, source, links = group.key, group.source, group.links
    return {
        "schema_version": VERSION,
        "evaluation_id": group.evaluation_id,
        "evaluation_timestamp": group.latest,
        "retrieved_timestamp": source.taken,
        "source_metadata": {
            "source_name": source.origin,
            "source_type": "evaluation_run",
            "source_organization_name": source.origin,
            "evaluator_relationship": "other",
            "additional_details": {
                "ledger_root": source.root,
                "ledger_size": str(source.size),
                "exported_by": f"{_OURS} {__version__}",
            },
        },
        "eval_library": {
            "name": key.library,
            "version": key.library_version,
            "additional_details": {"scoring_profile": key.profile or _UNKNOWN},
        },
        "model_info": _model_info(key),
        "evaluation_results": [
            {
                "evaluation_result_id": links["evaluation_result_id"],
                "evaluation_name": links["evaluation_name"],
                "source_data": {"dataset_name": key.dataset or _UNKNOWN, "source_type": "other"},
                "evaluation_timestamp": group.latest,
                "metric_config": _METRIC,
                "score_details": _score_details(group),
            }
        ],
        "detailed_evaluation_results": {
            "format": "jsonl",
            "file_path": f"{group.folder}/{group.uuid}_samples.jsonl",
            "hash_algorithm": "sha256",
            "checksum": checksum,
            "total_rows": len(group.rewards),
        },
    }


_METRIC: Object = {
    "evaluation_description": "The mean reward of all trials that have a score.",
    "metric_id": "proctor.mean_reward",
    "metric_name": "mean reward",
    "metric_kind": "mean_reward",
    "metric_unit": "points",
    "lower_is_better": False,
    "score_type": "continuous",
    "min_score": "-Infinity",
    "max_score": "Infinity",
}


def _score_details(group: Group) -> Object:
    scored = len(group.rewards) + group.no_number
    return {
        "score": mean(group.rewards),
        "details": {
            "trials": str(scored + group.not_scored),
            "scored": str(scored),
            "not_scored": str(group.not_scored),
            **({"no_number": str(group.no_number)} if group.no_number else {}),
            "rests_on": "the trials that have a score; one without a score is not counted as 0",
        },
    }


def _model_info(key: Key) -> Object:
    developer, slash, _ = key.model.partition("/")
    info: Object = {
        "name": key.model,
        "id": key.model,
        "additional_details": {
            "deployment_type": _UNKNOWN,
            "model_availability": _UNKNOWN,
            "agent": key.agent,
            "agent_version": key.agent_version or _UNKNOWN,
        },
    }
    return {**info, "developer": developer} if slash and developer else info


def _component(text: str) -> str:
    """Convert a name to a path component that is valid on every system."""
    name = make_id(text.replace(":", "_"))
    if _RESERVED.fullmatch(name):
        return f"{name.rstrip('.')}-{sha256_hex(name.encode())[:12]}"
    return name


def find_row_losses(
    line: bytes, document: Object, traces: Sequence[ReadTrace], messages: Sequence[Message]
) -> Iterator[Loss]:
    """Report what a written row does not contain of a trial."""
    row: Object = msgspec.json.decode(line)
    yield from list_losses(document, _read_document(row))
    places = _read_entries(row["messages"], messages)
    for trace in traces:
        yield from trace.losses
        at = f"entries of {trace.part}" if trace.part else "entries"
        for place, entry in enumerate(trace.entries):
            kept = places.get((trace.part, place), {})
            yield from list_losses(flatten_entry(entry), kept, f"{at}[{place}]")
    if len(traces) > 1:
        why = "the messages of all steps stand one after the other, without their names"
        yield Loss("steps", f"{len(traces)}", why)


def _read_document(row: Object) -> Object:
    document: Object = {}
    for path, name in METADATA.items():
        text = row["metadata"].get(name)
        if text is not None:
            put_at(document, path, text if name in TEXTS else msgspec.json.decode(text))
    put_at(document, "record.task.task_id", row["sample_id"])
    put_at(document, "record.agent.model", row["model_id"])
    put_at(document, "record.inputs.instruction", row["input"]["raw"])
    put_at(document, "record.evaluation.reward", row["evaluation"]["score"])
    return document


type _Places = dict[tuple[str, int], Object]


def _read_entries(bodies: Sequence[Object], messages: Sequence[Message]) -> _Places:
    places: _Places = {}
    tools: dict[str, str] = {}
    step, part = 0, ""
    for body, message in zip(bodies, messages, strict=True):
        if message.part != part:
            step, part = 0, message.part
        step += body["role"] == "assistant"
        said = {**_read_said(body, tools), "step": step}
        if message.said is not None:
            places[part, message.said] = said
        for at, call in zip(message.calls, body.get("tool_calls") or (), strict=True):
            tools[call["id"]] = call["name"]
            places[part, at] = {**_read_call(call), "step": step}
    return places


def _read_said(body: Object, tools: dict[str, str]) -> Object:
    if "tool_call_id" not in body:
        thought = body.get("reasoning_trace")
        return {"role": body["role"], "content": body["content"], "thought": thought}
    (call_id,) = body["tool_call_id"] or (None,)
    return {
        "role": "tool_result",
        "stdout": body["content"],
        "call_id": call_id,
        "tool_name": tools.get(call_id or ""),
    }


def _read_call(call: Object) -> Object:
    arguments = call["arguments"]
    return {
        "role": "tool_call",
        "tool_name": call["name"],
        "arguments": arguments,
        "command": (arguments or {}).get("command"),
        "call_id": call["id"],
    }


def export_trials(selection: Selection, target: Path) -> Exported:
    """Write aggregates and rows below a new directory."""
    withheld = list_withheld(selection.ledger)
    source = _find_source(selection)
    groups: dict[Key, Group] = {}
    with new_directory(target) as place, (place / NAME).open("xb") as file:
        report = Report(file)
        for trial in read_trials(selection, report):
            report_withheld(trial, withheld, report)
            if is_uncounted(trial, report):
                continue
            key = key_of(trial)
            group = groups.setdefault(key, Group(key, source))
            with writable(trial, report):
                _add_trial(trial, group, place, report)
        for group in groups.values():
            _write_aggregate(group, place)
    return report.exported(target, target / NAME)


def _find_source(selection: Selection) -> Source:
    checkpoint = selection.ledger.checkpoint()
    newest = max(row.seq for row in selection.rows)
    entry = selection.ledger.index.entry(newest)
    tree = checkpoint.tree
    taken = int(datetime.fromisoformat(entry.at).timestamp()) if entry else 0
    return Source(checkpoint.origin, tree.root.hex(), tree.size, str(taken))


def _add_trial(trial: SelectedTrial, group: Group, place: Path, report: Report) -> None:
    reward = trial.row.reward
    if reward is None:
        outcome, why = outcome_of(trial.row), trial.row.reason_code
        group.not_scored += outcome == NOT_SCORED
        group.no_number += outcome == NO_NUMBER
        said = f"{outcome} ({why})" if why else outcome
        report.leave_out(f"{trial.name}: {said}, and a row must have a score")
        return
    document, traces = trial.document(), read_traces(trial)
    messages = make_messages(traces)
    line = msgspec.json.encode(make_row(trial, document, reward, messages) | group.links)
    report.lose(trial.name, find_row_losses(line, document, traces, messages))
    path = place / group.folder / f"{group.uuid}_samples.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(line + b"\n")
    group.rewards.append(reward)
    group.latest = max(group.latest, trial.row.timestamp or "")
    report.trials += 1


def _write_aggregate(group: Group, place: Path) -> None:
    """Write the aggregate of a group; without scores there is no mean, so none is written."""
    if not group.rewards:
        return
    folder = place / group.folder
    checksum = sha256_file(folder / f"{group.uuid}_samples.jsonl")
    data = msgspec.json.encode(make_aggregate(group, checksum))
    with create_below(place, f"{group.folder}/{group.uuid}.json") as file:
        file.write(msgspec.json.format(data, indent=2) + b"\n")
