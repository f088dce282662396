"""One trial as a row of the samples.

What the schema has no field for stands in `metadata`, where every value is a text: a text of the
record as it is, anything else as JSON.
"""

from collections.abc import Sequence

from proctor.digest import sha256_hex
from proctor.exporters.eee.messages import Message, as_text
from proctor.exporters.fields import find_at
from proctor.exporters.trials import SealedTrial
from proctor.record.cost import CostRecord
from proctor.trajectory.entry import Object

VERSION = "0.3.0"
"""Of the schema."""
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
"""Where in a row's metadata a field of a sealed trial stands."""
TEXTS = frozenset(
    {
        *("trial_id", "experiment_id", "dataset_id", "timestamp", "task_revision", "agent"),
        *("agent_version", "runtime_image", "compute_backend", "system_prompt"),
        *("completeness", "cost_basis"),
    }
)
"""Which of them are texts; the others are JSON."""
FULL_MARKS = 1.0
"""The reward from which on an answer counts as correct."""


def make_row(
    trial: SealedTrial, told: Object, reward: float, messages: Sequence[Message]
) -> Object:
    """The row, without what links it to its aggregate."""
    record = trial.record
    instruction = record.inputs.instruction
    calls = sum(len(message.calls) for message in messages)
    metadata = {
        name: as_text(value)
        for path, name in METADATA.items()
        if (value := find_at(told, path)) is not None
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
