"""The record and the failures of a trial in words: of a file, of a trial, of a sealed trial alike.

Records are read from their JSON, because the model of records is slow to import. Unknown values are
named so, never shown as empty.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

from proctor.record.comparable import render_model
from proctor.record.reasons import name_outcome
from proctor.sentence import render_duration, render_figure, render_money, render_value
from proctor.traces.failures import Failure, TrialFailures, name_exception

LABEL = len("instruction")
"""The width of labels."""
LONGEST = 400
"""Characters shown of a value."""
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


def cut_line(text: str, longest: int | None = LONGEST) -> str:
    """A text on one line, at most `longest` characters of it."""
    line = " ".join(text.split())
    return line if longest is None or len(line) <= longest else f"{line[:longest]}…"


type Locate = Callable[[str], str]
"""Says where a file of the trial can be read: its path, or the command that prints it."""


def list_failures(found: TrialFailures, locate: Locate) -> Iterator[tuple[str, list[str]]]:
    """Each failure as a label and lines, the exceptions first."""
    for each in found.exceptions:
        shown = name_exception(each.title)
        is_error = shown == each.title
        lines = list(each.lines)
        if is_error:
            first, *rest = lines or [""]
            lines = [": ".join(filter(None, (each.title, first))), *rest]
        yield _label("errored" if is_error else shown, each), [*lines, *_whole(each, locate)]
    for each, after in zip_longest(found.tests, found.tests[1:]):
        # An exception's class is in its line already.
        name = [each.title] if each.title and each.title not in each.line else []
        what = "failed test" if name else "verifier says"
        # Tests of one output name it once, below the last of them.
        is_last = after is None or after.file != each.file
        whole = _whole(each, locate) if is_last else []
        yield _label(what, each), [*name, *each.lines, *whole]
    if found.more_tests:
        yield "failed tests", [f"{found.more_tests:,} more, not listed"]


def render_failures(found: TrialFailures, locate: Locate) -> Iterator[str]:
    """The failures as lines, each with its label and the rest indented."""
    for label, (first, *rest) in list_failures(found, locate):
        yield f"{label}: {first}"
        yield from (f"    {line}" for line in rest)


def _label(what: str, failure: Failure) -> str:
    return f"step {failure.step}, {what}" if failure.step else what


def _whole(failure: Failure, locate: Locate) -> list[str]:
    return [f"whole text: {locate(failure.file)}"] if failure.file else []
