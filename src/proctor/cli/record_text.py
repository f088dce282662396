"""A trial record as lines for people. What is unknown is called so, never shown as nothing."""

from collections.abc import Iterator

from proctor.record.comparable import render_model
from proctor.record.cost import CostRecord
from proctor.record.model import TimingRecord, TrialRecord
from proctor.record.read import LoadedRecord
from proctor.record.rules import find_missing

_UNKNOWN = "unknown"
_LONGEST = 400


def render_record_text(loaded: LoadedRecord) -> Iterator[str]:
    """Lines of one record."""
    record = loaded.record
    yield f"{record.trial_id}, {record.completeness}, of experiment {record.experiment_id}"
    fields = list(_fields(record))
    width = max(len(label) for label, _ in fields)
    yield from (f"  {label:<{width}}  {text}" for label, text in fields)
    for file in record.inputs.input_files or ():
        yield f"  input  {file.hash}  {file.path}"
    for error in record.evaluation.validity.errors:
        yield f"  error  {_cut(error)}"
    if record.completeness == "partial":
        yield from (f"  not complete: {missing}" for missing in find_missing(record))
    for found in loaded.diagnostics:
        yield f"  {'problem' if found.is_problem else 'note'}: {found}"


def _fields(record: TrialRecord) -> Iterator[tuple[str, str]]:
    agent, environment, outputs = record.agent, record.environment, record.outputs
    reward = record.evaluation.reward
    yield "reward", "not scored" if reward is None else f"{reward}"
    if record.evaluation.breakdown:
        rewards = record.evaluation.breakdown.items()
        yield "rewards", _cut(", ".join(f"{key} {value}" for key, value in rewards))
    yield "task", f"{record.task.task_id} at {record.task.task_revision}"
    yield "dataset", record.dataset_id or _UNKNOWN
    yield "agent", f"{agent.adapter} {agent.adapter_revision or '(revision unknown)'}"
    yield "model", render_model(agent.model, agent.configuration)
    yield "image", environment.runtime_image
    yield "backend", environment.compute_backend
    versions = (environment.tool_versions or {}).items()
    yield "tools", ", ".join(f"{tool} {version}" for tool, version in versions) or _UNKNOWN
    yield "instruction", _cut(record.inputs.instruction)
    yield "trace", outputs.trajectory_path or outputs.conversation_path or "none"
    yield "when", record.timestamp.isoformat()
    yield "seconds", _render_timing(record.timing)
    yield "cost", _render_cost(record.cost)
    if record.adaptation is not None:
        yield "adaptation", f"{record.adaptation.family_id}, {record.adaptation.variation_key}"


def _render_timing(timing: TimingRecord) -> str:
    phases = {
        "setup": timing.setup_seconds,
        "agent": timing.agent_seconds,
        "verification": timing.verification_seconds,
    }
    parts = [f"{name} {seconds:.3f}" for name, seconds in phases.items() if seconds is not None]
    return f"{timing.total_seconds:.3f}" + (f" ({', '.join(parts)})" if parts else "")


def _render_cost(cost: CostRecord | None) -> str:
    if cost is None:
        return _UNKNOWN
    usd = cost.estimated_cost_usd
    counts = {
        "tokens in": cost.tokens_in,
        "from cache": cost.cache_read_tokens,
        "to cache": cost.cache_write_tokens,
        "tokens out": cost.tokens_out,
        "advisor calls": cost.advisor_calls,
    }
    parts = [f"{count:,} {name}" for name, count in counts.items() if count is not None]
    return ", ".join([f"{_UNKNOWN} USD" if usd is None else f"{usd} USD", *parts])


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
