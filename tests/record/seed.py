"""aec-bench's documented TrialRecord, written from its listing alone: the second opinion on ours.

Types are lax, as there; it shares no line with the package.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _not_blank(text: str) -> str:
    assert text.strip()
    return text


NonEmptyStr = Annotated[str, AfterValidator(_not_blank)]


class TaskReference(StrictModel):
    task_id: NonEmptyStr
    task_revision: NonEmptyStr


class AgentReference(StrictModel):
    adapter: NonEmptyStr
    model: NonEmptyStr
    adapter_revision: str | None = None
    configuration: dict[str, Any] = {}


class EnvironmentSnapshot(StrictModel):
    runtime_image: NonEmptyStr
    compute_backend: NonEmptyStr
    tool_versions: dict[str, str] | None = None


class FileReference(StrictModel):
    path: NonEmptyStr
    hash: NonEmptyStr
    source: str | None = None


class InputRecord(StrictModel):
    instruction: NonEmptyStr
    system_prompt: str | None = None
    input_files: list[FileReference] | None = None


class AgentOutput(StrictModel):
    status: Literal["completed", "partial", "failed", "empty"]
    output_path: NonEmptyStr
    output_format: NonEmptyStr
    error_message: str | None = None


class OutputRecord(StrictModel):
    agent_output: AgentOutput | None = None
    raw_output_path: str | None = None
    conversation_path: str | None = None
    trajectory_path: str | None = None
    agent_result: dict[str, Any] | None = None


class ValidityCheck(StrictModel):
    output_parseable: bool
    schema_valid: bool
    verifier_completed: bool
    errors: list[str] = []


class ErrorTag(StrictModel):
    category: NonEmptyStr
    description: str | None = None
    source: Literal["mechanical", "human", "judge"]


class ConfidenceMetadata(StrictModel):
    annotator_count: Annotated[int, Field(ge=0)] | None = None
    inter_rater_agreement: Annotated[float, Field(ge=0, le=1)] | None = None
    confidence_interval: tuple[float, float] | None = None
    confidence_method: NonEmptyStr | None = None


class Annotation(StrictModel):
    reviewer_id: NonEmptyStr
    reviewer_discipline: NonEmptyStr | None = None
    timestamp: datetime
    judgment: Literal["pass", "fail", "defer"]
    categories: list[str] = []
    notes: str | None = None


class EvaluationResult(StrictModel):
    reward: Annotated[float, Field(ge=0, le=1)]
    validity: ValidityCheck
    breakdown: dict[str, Any] | None = None
    error_taxonomy: list[ErrorTag] | None = None
    confidence: ConfidenceMetadata | None = None
    annotations: list[Annotation] | None = None


class TimingRecord(StrictModel):
    total_seconds: Annotated[float, Field(ge=0)]
    agent_seconds: Annotated[float, Field(ge=0)] | None = None
    setup_seconds: Annotated[float, Field(ge=0)] | None = None
    verification_seconds: Annotated[float, Field(ge=0)] | None = None


class CostRecord(StrictModel):
    tokens_in: Annotated[int, Field(ge=0)] | None = None
    tokens_out: Annotated[int, Field(ge=0)] | None = None
    cache_read_tokens: Annotated[int, Field(ge=0)] | None = None
    cache_write_tokens: Annotated[int, Field(ge=0)] | None = None
    estimated_cost_usd: Annotated[float, Field(ge=0)] | None = None
    advisor_calls: Annotated[int, Field(ge=0)] | None = None
    advisor_input_tokens: Annotated[int, Field(ge=0)] | None = None
    advisor_output_tokens: Annotated[int, Field(ge=0)] | None = None


class DerivationStepRecord(StrictModel):
    axis: NonEmptyStr
    value: NonEmptyStr
    parent_value: NonEmptyStr


class AdaptationProvenance(StrictModel):
    family_id: NonEmptyStr
    seed_task_id: NonEmptyStr
    variation_key: NonEmptyStr
    variation: dict[str, str]
    derivation_lineage: list[DerivationStepRecord] = []


class TrialRecord(StrictModel):
    trial_id: NonEmptyStr
    experiment_id: NonEmptyStr
    dataset_id: str | None = None
    timestamp: datetime
    task: TaskReference
    agent: AgentReference
    environment: EnvironmentSnapshot
    inputs: InputRecord
    outputs: OutputRecord
    evaluation: EvaluationResult
    timing: TimingRecord
    cost: CostRecord | None = None
    adaptation: AdaptationProvenance | None = None
    completeness: Literal["complete", "partial"]


def render(data: bytes) -> bytes:
    """What aec-bench's model writes for a record that it reads."""
    return TrialRecord.model_validate_json(data).model_dump_json(indent=2).encode()
