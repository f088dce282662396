"""TrialRecord: what is kept of one trial, field for field as in aec-bench's first generation.

The order of the fields is the order in which they are written. Two rules are ours: `reward` may be
null (not scored) and is not limited to 0..1. What aec-bench cannot hold of that, foreign.py lists.
Shapes are checked, not truth; paths are names of files, and nothing here opens one.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from proctor.record.cost import CostRecord
from proctor.record.fields import (
    Array,
    Count,
    NonEmptyStr,
    Object,
    Part,
    Seconds,
    Text,
    Timestamp,
)


class TaskReference(Part):
    """The task that was run."""

    task_id: NonEmptyStr
    """Name of the task."""
    task_revision: NonEmptyStr
    """What the task consisted of: a digest or a revision, or a word for not knowing it."""


class AgentReference(Part):
    """The agent and model that ran it."""

    adapter: NonEmptyStr
    """Name of the harness."""
    model: NonEmptyStr
    """The model that answered, as resolved; the provider before it where the harness says one."""
    adapter_revision: Text | None = None
    """Version or revision of the harness."""
    configuration: Object = Field(default_factory=dict)
    """The settings in effect, as the harness has them."""


class EnvironmentSnapshot(Part):
    """Where it ran."""

    runtime_image: NonEmptyStr
    """Image or root file system; a digest pins it, a tag or a path does not."""
    compute_backend: NonEmptyStr
    """What ran it, such as docker or sandbox."""
    tool_versions: dict[Text, Text] | None = None
    """Tools that decide the result, each with its version."""


class FileReference(Part):
    """A file that went in."""

    path: NonEmptyStr
    """Where it was: relative to the trial, or absolute inside the container."""
    hash: NonEmptyStr
    """SHA-256 of its bytes, 64 lower-case hex digits, where it is a true digest."""
    source: Text | None = None
    """Where it came from, or what it is: task, verifier, system_prompt."""


class InputRecord(Part):
    """What the agent was given."""

    instruction: NonEmptyStr
    """The task's instruction, whole."""
    system_prompt: Text | None = None
    """The system prompt, where one was used."""
    input_files: Array[FileReference] | None = None
    """Files that decide the trial, each with its digest."""


class AgentOutput(Part):
    """The answer that was handed in."""

    status: Literal["completed", "partial", "failed", "empty"]
    """How the agent's own work ended."""
    output_path: NonEmptyStr
    """The file that holds the answer."""
    output_format: NonEmptyStr
    """What the file is, such as jsonl or markdown."""
    error_message: Text | None = None
    """Why there is no whole answer."""


class OutputRecord(Part):
    """All that is kept of the agent's work."""

    agent_output: AgentOutput | None = None
    """The answer, where one was handed in."""
    raw_output_path: Text | None = None
    """The answer's bytes as they were left."""
    conversation_path: Text | None = None
    """conversation.jsonl: the messages as the provider saw them."""
    trajectory_path: Text | None = None
    """trajectory.jsonl: what happened, step by step."""
    agent_result: Object | None = None
    """What the harness says about its own run."""


class ValidityCheck(Part):
    """Whether there was something to score, and whether it was scored."""

    output_parseable: bool
    """The verifier could read the answer."""
    schema_valid: bool
    """The answer has the shape that was asked for."""
    verifier_completed: bool
    """The verifier ran to its end."""
    errors: Array[Text] = ()
    """What went wrong, one sentence each."""


class ErrorTag(Part):
    """One kind of mistake that was found."""

    category: NonEmptyStr
    """Name of the kind."""
    description: Text | None = None
    """What it was here."""
    source: Literal["mechanical", "human", "judge"]
    """Who says so."""


class ConfidenceMetadata(Part):
    """How sure the reward is."""

    annotator_count: Count | None = None
    """How many people judged."""
    inter_rater_agreement: Annotated[float, Field(ge=0, le=1)] | None = None
    """How far they agree, 0 to 1."""
    confidence_interval: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """Low and high end, in that order."""
    confidence_method: NonEmptyStr | None = None
    """How the interval was made."""

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        ends = self.confidence_interval
        if ends is not None and ends[0] > ends[1]:
            raise ValueError(
                f"confidence_interval is {list(ends)!r}; expected the low end first, then the high"
            )
        return self


class Annotation(Part):
    """What one reviewer said."""

    reviewer_id: NonEmptyStr
    """Who."""
    reviewer_discipline: NonEmptyStr | None = None
    """What they are an expert in."""
    timestamp: Timestamp
    """When they said it."""
    judgment: Literal["pass", "fail", "defer"]
    """What they found."""
    categories: Array[Text] = ()
    """Kinds of mistake they saw."""
    notes: Text | None = None
    """In their own words."""


class EvaluationResult(Part):
    """The score, or that there is none."""

    reward: float | None
    """The score, any finite number; null: not scored, which is not zero."""
    validity: ValidityCheck
    """Whether the score is one."""
    breakdown: Object | None = None
    """The raw rewards and metrics, as the verifier gave them."""
    error_taxonomy: Array[ErrorTag] | None = None
    """Mistakes by kind."""
    confidence: ConfidenceMetadata | None = None
    """How sure the reward is."""
    annotations: Array[Annotation] | None = None
    """What reviewers said before the record was sealed."""

    @model_validator(mode="after")
    def _check_unparseable(self) -> Self:
        if not self.validity.output_parseable and self.reward:
            raise ValueError(
                f"reward is {self.reward!r} although validity.output_parseable is false; "
                "expected 0 or null for an answer that could not be read"
            )
        return self


class DerivationStepRecord(Part):
    """One axis along which the task was changed."""

    axis: NonEmptyStr
    """Name of the axis."""
    value: NonEmptyStr
    """What it was changed to."""
    parent_value: NonEmptyStr
    """What it was before."""

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if self.value == self.parent_value:
            raise ValueError(f"value and parent_value are both {self.value!r}; expected a change")
        return self


class AdaptationProvenance(Part):
    """Where a varied task comes from."""

    family_id: NonEmptyStr
    """The family of variations."""
    seed_task_id: NonEmptyStr
    """The task that was varied."""
    variation_key: NonEmptyStr
    """The variation as one name, by convention axis=value__axis=value."""
    variation: Annotated[dict[NonEmptyStr, NonEmptyStr], Field(min_length=1)]
    """Each axis with its value; not empty."""
    derivation_lineage: Array[DerivationStepRecord] = ()
    """The changes that led here, at most one per axis."""

    @model_validator(mode="after")
    def _check_lineage(self) -> Self:
        seen: set[str] = set()
        for step in self.derivation_lineage:
            if step.axis in seen:
                raise ValueError(f"derivation_lineage has the axis {step.axis!r} twice")
            seen.add(step.axis)
            self._check_step(step)
        return self

    def _check_step(self, step: DerivationStepRecord) -> None:
        if step.axis not in self.variation:
            raise ValueError(
                f"derivation_lineage has the axis {step.axis!r}; "
                f"expected one of variation: {', '.join(map(repr, self.variation))}"
            )
        if step.value != self.variation[step.axis]:
            raise ValueError(
                f"derivation_lineage changes {step.axis!r} to {step.value!r}; "
                f"expected {self.variation[step.axis]!r}, as variation has it"
            )


type Completeness = Literal["complete", "partial"]


class TimingRecord(Part):
    """Wall-clock seconds per phase. The phases need not add up to the whole."""

    total_seconds: Seconds
    """The whole trial."""
    agent_seconds: Seconds | None = None
    """The agent's work."""
    setup_seconds: Seconds | None = None
    """Bringing the environment up."""
    verification_seconds: Seconds | None = None
    """The verifier."""


class TrialRecord(Part):
    """One agent's run at one task."""

    trial_id: NonEmptyStr
    """Name of the trial, unique within its experiment."""
    experiment_id: NonEmptyStr
    """Name of the run that the trial belongs to."""
    dataset_id: Text | None = None
    """name@version of the dataset that the task is from."""
    timestamp: Timestamp
    """When the trial was run; new records carry an offset from UTC."""
    task: TaskReference
    """Which task, and what it consisted of."""
    agent: AgentReference
    """Which harness and model, and their settings."""
    environment: EnvironmentSnapshot
    """Which image, backend and tools."""
    inputs: InputRecord
    """Instruction, system prompt and files."""
    outputs: OutputRecord
    """What the agent left."""
    evaluation: EvaluationResult
    """What it scored."""
    timing: TimingRecord
    """How long it took."""
    cost: CostRecord | None = None
    """What it used; null: not known."""
    adaptation: AdaptationProvenance | None = None
    """Which variation of a task it was, where it was one."""
    completeness: Completeness
    """complete: all provenance is there, for good; partial: some may be missing."""
