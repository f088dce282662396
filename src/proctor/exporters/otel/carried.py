"""Which field of a sealed trial becomes which attribute of the span that stands for the trial.

The names of the conventions are used where there is one, and names of our own for the rest. The
table serves both directions, so that no field can be written and not be looked for again.
"""

from typing import Final

AGENT: Final = "gen_ai.agent.name"
MODEL: Final = "gen_ai.request.model"
TRIAL: Final = "proctor.trial.id"
DIGEST: Final = "proctor.record.sha256"
STATUS: Final = "proctor.status"

ATTRIBUTES: Final = {
    "record.trial_id": TRIAL,
    "record.experiment_id": "proctor.experiment.id",
    "record.dataset_id": "proctor.dataset.id",
    "record.timestamp": "proctor.trial.timestamp",
    "record.task.task_id": "proctor.task.id",
    "record.task.task_revision": "proctor.task.revision",
    "record.agent.adapter": AGENT,
    "record.agent.adapter_revision": "gen_ai.agent.version",
    "record.agent.model": MODEL,
    "record.environment.runtime_image": "proctor.environment.image",
    "record.environment.compute_backend": "proctor.environment.backend",
    "record.outputs.agent_output.status": "proctor.output.status",
    "record.outputs.agent_output.output_path": "proctor.output.path",
    "record.outputs.agent_output.output_format": "proctor.output.format",
    "record.outputs.agent_output.error_message": "proctor.output.error",
    "record.outputs.conversation_path": "proctor.output.conversation",
    "record.outputs.trajectory_path": "proctor.output.trajectory",
    "record.evaluation.validity.output_parseable": "proctor.validity.output_parseable",
    "record.evaluation.validity.schema_valid": "proctor.validity.schema_valid",
    "record.evaluation.validity.verifier_completed": "proctor.validity.verifier_completed",
    "record.timing.total_seconds": "proctor.timing.total_seconds",
    "record.timing.agent_seconds": "proctor.timing.agent_seconds",
    "record.timing.setup_seconds": "proctor.timing.setup_seconds",
    "record.timing.verification_seconds": "proctor.timing.verification_seconds",
    "record.cost.tokens_in": "gen_ai.usage.input_tokens",
    "record.cost.tokens_out": "gen_ai.usage.output_tokens",
    "record.cost.cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    "record.cost.cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "record.cost.estimated_cost_usd": "proctor.cost.usd",
    "record.cost.advisor_calls": "proctor.advisor.calls",
    "record.cost.advisor_input_tokens": "proctor.advisor.input_tokens",
    "record.cost.advisor_output_tokens": "proctor.advisor.output_tokens",
    "record.completeness": "proctor.completeness",
    "cost_basis": "proctor.cost.basis",
    "reason_code": "proctor.reason_code",
    "slot.task": "proctor.slot.task",
    "slot.attempt": "proctor.slot.attempt",
    "source.kind": "proctor.source.kind",
    "source.name": "proctor.source.name",
}

OF_CHAT: Final = {
    "model": "gen_ai.response.model",
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cached": "gen_ai.usage.cache_read.input_tokens",
}
"""What a turn of the model says beyond its words."""

STEP: Final = "proctor.step"
PART: Final = "proctor.part"
ENTRY: Final = "proctor.entry"
"""The place in the trace, counted from 0: of what was said, or of the tool call."""
RESULT: Final = "proctor.result_entry"
RESULT_TIME: Final = "proctor.result_time"
"""When a result came, where that is not when its span ends."""
TOOL: Final = "gen_ai.tool.name"
CALL_ID: Final = "gen_ai.tool.call.id"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
STDOUT: Final = "gen_ai.tool.call.result"
EXIT_CODE: Final = "process.exit.code"

OF_RESULT: Final = {
    "stdout": STDOUT,
    "exit_code": EXIT_CODE,
    "stderr": "proctor.tool.stderr",
    "duration_ms": "proctor.tool.duration_ms",
    "output_summary": "proctor.tool.output_summary",
}
"""Fields of a result's entry."""
COMMAND: Final = "proctor.tool.command"
"""What a call ran, where its arguments do not say it under that name."""

INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
SYSTEM: Final = "gen_ai.system_instructions"
UNANSWERED: Final = "proctor.unanswered.messages"
"""What came after the last turn of the model."""

EVALUATION: Final = "gen_ai.evaluation.result"
METRIC: Final = "gen_ai.evaluation.name"
SCORE: Final = "gen_ai.evaluation.score.value"
LABEL: Final = "gen_ai.evaluation.score.label"
EXPLANATION: Final = "gen_ai.evaluation.explanation"
REWARD: Final = "reward"
NOT_SCORED: Final = "not_scored"
