"""The fields of a record in words: of a record file, of a trial, and of a sealed trial alike.

Read from the record's JSON, because the model of records is slow to import. Unknown values are
named so, never shown as empty.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from proctor.record.comparable import render_model
from proctor.record.reasons import name_outcome
from proctor.sentence import render_duration, render_figure, render_money, render_value

LABEL = len("instruction")
"""The width of labels."""
_UNKNOWN = "unknown"
_PHASES = {
    "setup": "setup_seconds",
    "agent": "agent_seconds",
    "verification": "verification_seconds",
}
_COUNTS = {
    "tokens in": "tokens_in",
    "from cache": "cache_read_tokens",
    "to cache": "cache_write_tokens",
    "tokens out": "tokens_out",
    "advisor calls": "advisor_calls",
}

type Document = Mapping[str, Any]
"""A record as JSON."""


def render_record_fields(
    record: Document,
    *,
    dataset: str | None = None,
    outcome: str | None = None,
    reason: str | None = None,
    cost_basis: str | None = None,
) -> Iterator[tuple[str, str]]:
    """The fields of a record with their labels, in order.

    `dataset` is for a record that has none. What a ledger knows beside the record: its outcome if
    it has no reward, the reason for it, and where its cost is from.
    """
    agent, environment, outputs = record["agent"], record["environment"], record["outputs"]
    reward = render_reward(record["evaluation"], outcome)
    yield "reward", f"{reward} ({reason})" if reason else reward
    if rewards := record["evaluation"].get("breakdown"):
        yield "rewards", ", ".join(f"{key} {render_value(value)}" for key, value in rewards.items())
    yield "task", f"{record['task']['task_id']} at {record['task']['task_revision']}"
    yield "dataset", record.get("dataset_id") or dataset or _UNKNOWN
    yield "agent", f"{agent['adapter']} {agent.get('adapter_revision') or '(revision unknown)'}"
    yield "model", render_model(agent["model"], agent.get("configuration") or {})
    yield "image", environment.get("runtime_image") or _UNKNOWN
    yield "backend", environment.get("compute_backend") or _UNKNOWN
    versions = (environment.get("tool_versions") or {}).items()
    yield "tools", ", ".join(f"{tool} {version}" for tool, version in versions) or _UNKNOWN
    yield "instruction", record["inputs"]["instruction"]
    yield "trace", outputs.get("trajectory_path") or outputs.get("conversation_path") or "none"
    yield "when", record["timestamp"]
    yield "time", _render_timing(record["timing"])
    yield "cost", _render_cost(record.get("cost"), cost_basis)
    if adaptation := record.get("adaptation"):
        yield "adaptation", f"{adaptation['family_id']}, {adaptation['variation_key']}"


def render_reward(evaluation: Document, outcome: str | None = None) -> str:
    """The reward of a record, or its outcome without one."""
    reward = evaluation.get("reward")
    if reward is not None:
        return render_figure(reward)
    return outcome or name_outcome(None, has_rewards=bool(evaluation.get("breakdown")))


def _render_timing(timing: Document) -> str:
    parts = [
        f"{name} {render_duration(seconds)}"
        for name, key in _PHASES.items()
        if (seconds := timing.get(key)) is not None
    ]
    return render_duration(timing["total_seconds"]) + (f" ({', '.join(parts)})" if parts else "")


def _render_cost(cost: Document | None, basis: str | None) -> str:
    if cost is None:
        return _UNKNOWN
    usd = cost.get("estimated_cost_usd")
    parts = [_UNKNOWN if usd is None else render_money(usd)]
    if usd is not None and basis:
        parts.append(basis)
    counts = {name: cost.get(key) for name, key in _COUNTS.items()}
    parts += [f"{count:,} {name}" for name, count in counts.items() if count is not None]
    return ", ".join(parts)
