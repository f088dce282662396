"""TrialRecord: what is kept of one trial, field for field as in aec-bench's first generation.

Fields are written in the order given here. Two rules differ from aec-bench: `reward` may be null
(not scored) and is not limited to 0..1; `rules.find_foreign` lists what aec-bench would refuse.
Only the format is checked; files named by path are not opened.
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
    """Digest or revision of the task's contents, or a placeholder if unknown."""


class AgentReference(Part):
    """The agent and model that ran it."""

    adapter: NonEmptyStr
    """Name of the harness."""
    model: NonEmptyStr
    """The model that answered, as resolved; prefixed with the provider if the harness gives one."""
    adapter_revision: Text | None = None
    """Version or revision of the harness."""
    configuration: Object = Field(default_factory=dict)
    """The settings in effect, in the harness's own form."""


class EnvironmentSnapshot(Part):
    """The environment of the trial."""

    runtime_image: NonEmptyStr
    """Image or root file system; a digest pins it, a tag or a path does not."""
    compute_backend: NonEmptyStr
    """Environment type, such as docker or sandbox."""
    tool_versions: dict[Text, Text] | None = None
    """Versions of the tools that affect the result, by tool."""


class FileReference(Part):
    """An input file of the trial."""

    path: NonEmptyStr
    """Its path: relative to the trial, or absolute inside the container."""
    hash: NonEmptyStr
    """SHA-256 of its bytes, 64 lower-case hex digits; some writers use other texts."""
    source: Text | None = None
    """Origin or purpose: task, verifier, system_prompt."""


class InputRecord(Part):
    """What the agent was given."""

    instruction: NonEmptyStr
    """The task's full instruction."""
    system_prompt: Text | None = None
    """The system prompt, if one was used."""
    input_files: Array[FileReference] | None = None
    """Files that affect the trial, each with its digest."""


class AgentOutput(Part):
    """The submitted answer."""

    status: Literal["completed", "partial", "failed", "empty"]
    """How the agent's own work ended."""
    output_path: NonEmptyStr
    """The file with the answer."""
    output_format: NonEmptyStr
    """Format of the file, such as jsonl or markdown."""
    error_message: Text | None = None
    """Why there is no complete answer."""


class OutputRecord(Part):
    """Everything that is kept of the agent's work."""

    agent_output: AgentOutput | None = None
    """The answer, if one was submitted."""
    raw_output_path: Text | None = None
    """The answer's original bytes."""
    conversation_path: Text | None = None
    """conversation.jsonl: the messages that the provider saw."""
    trajectory_path: Text | None = None
    """trajectory.jsonl: the steps of the run."""
    agent_result: Object | None = None
    """The harness's report about its own run."""


class ValidityCheck(Part):
    """Whether there was an answer to score, and whether it was scored."""

    output_parseable: bool
    """Whether the verifier could read the answer."""
    schema_valid: bool
    """Whether the answer has the required structure."""
    verifier_completed: bool
    """Whether the verifier finished."""
    errors: Array[Text] = ()
    """Errors, one sentence each."""


class ErrorTag(Part):
    """One category of mistake that was found."""

    category: NonEmptyStr
    """Name of the category."""
    description: Text | None = None
    """The mistake in this trial."""
    source: Literal["mechanical", "human", "judge"]
    """How it was found."""


class ConfidenceMetadata(Part):
    """How reliable the reward is."""

    annotator_count: Count | None = None
    """Number of people who judged."""
    inter_rater_agreement: Annotated[float, Field(ge=0, le=1)] | None = None
    """Agreement between them, 0 to 1."""
    confidence_interval: Annotated[tuple[float, float], Field(strict=False)] | None = None
    """Lower and upper bound, in that order."""
    confidence_method: NonEmptyStr | None = None
    """Method by which the interval was computed."""

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        ends = self.confidence_interval
        if ends is not None and ends[0] > ends[1]:
            raise ValueError(
                f"confidence_interval is {list(ends)!r}; expected the low end first, then the high"
            )
        return self


class Annotation(Part):
    """The judgment of one reviewer."""

    reviewer_id: NonEmptyStr
    """Id of the reviewer."""
    reviewer_discipline: NonEmptyStr | None = None
    """Field of expertise of the reviewer."""
    timestamp: Timestamp
    """Time of the judgment."""
    judgment: Literal["pass", "fail", "defer"]
    """The reviewer's judgment."""
    categories: Array[Text] = ()
    """Categories of mistakes that were found."""
    notes: Text | None = None
    """Free-form notes."""


class EvaluationResult(Part):
    """The score, or the fact that there is none."""

    reward: float | None
    """The score, any finite number; null: not scored, which is not 0."""
    validity: ValidityCheck
    """Whether the score is valid."""
    breakdown: Object | None = None
    """The raw rewards and metrics that the verifier wrote."""
    error_taxonomy: Array[ErrorTag] | None = None
    """Mistakes by category."""
    confidence: ConfidenceMetadata | None = None
    """How reliable the reward is."""
    annotations: Array[Annotation] | None = None
    """Judgments of reviewers from before the record was sealed."""

    @model_validator(mode="after")
    def _check_unparseable(self) -> Self:
        if not self.validity.output_parseable and self.reward:
            raise ValueError(
                f"reward is {self.reward!r} although validity.output_parseable is false; "
                "expected 0 or null for an answer that could not be read"
            )
        return self


class DerivationStepRecord(Part):
    """One change of a task along an axis."""

    axis: NonEmptyStr
    """Name of the axis."""
    value: NonEmptyStr
    """Value after the change."""
    parent_value: NonEmptyStr
    """Value before the change."""

    @model_validator(mode="after")
    def _check_change(self) -> Self:
        if self.value == self.parent_value:
            raise ValueError(f"value and parent_value are both {self.value!r}; expected a change")
        return self


class AdaptationProvenance(Part):
    """Origin of a task that is a variation of another."""

    family_id: NonEmptyStr
    """Id of the family of variations."""
    seed_task_id: NonEmptyStr
    """The task that was varied."""
    variation_key: NonEmptyStr
    """Name of the variation, by convention axis=value__axis=value."""
    variation: Annotated[dict[NonEmptyStr, NonEmptyStr], Field(min_length=1)]
    """Value of each axis; not empty."""
    derivation_lineage: Array[DerivationStepRecord] = ()
    """The changes that led to this variation, at most one per axis."""

    @model_validator(mode="after")
    def _check_lineage(self) -> Self:
        seen: set[str] = set()
        for step in self.derivation_lineage:
            if step.axis in seen:
                raise ValueError(f"derivation_lineage has the axis {step.axis!r} twice")
            seen.add(step.axis)
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
        return self


type Completeness = Literal["complete", "partial"]


class TimingRecord(Part):
    """Wall-clock seconds per phase. The phases need not add up to the total."""

    total_seconds: Seconds
    """The whole trial."""
    agent_seconds: Seconds | None = None
    """The agent's run."""
    setup_seconds: Seconds | None = None
    """Starting the environment."""
    verification_seconds: Seconds | None = None
    """The verifier."""


class TrialRecord(Part):
    """One run of an agent on a task."""

    trial_id: NonEmptyStr
    """Name of the trial, unique within its experiment."""
    experiment_id: NonEmptyStr
    """Name of the experiment that the trial belongs to."""
    dataset_id: Text | None = None
    """name@version of the task's dataset."""
    timestamp: Timestamp
    """When the trial ran; new records have an offset from UTC."""
    task: TaskReference
    """The task and its revision."""
    agent: AgentReference
    """The agent, its model and its settings."""
    environment: EnvironmentSnapshot
    """Image, backend and tools."""
    inputs: InputRecord
    """Instruction, system prompt and files."""
    outputs: OutputRecord
    """The agent's output."""
    evaluation: EvaluationResult
    """The score."""
    timing: TimingRecord
    """Durations."""
    cost: CostRecord | None = None
    """Tokens and money; null: unknown."""
    adaptation: AdaptationProvenance | None = None
    """The variation of a task, if it is one."""
    completeness: Completeness
    """complete: all provenance is recorded; partial: some may be missing."""
