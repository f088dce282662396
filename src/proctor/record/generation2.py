"""The second generation's two documents: a trial, and the manifest of the run it belongs to.

The parts that a record of ours can hold, and the rules between statuses and times, are checked.
What has no place in a record (authorities, qualification, regimes) is taken as free JSON: the
bytes are kept, so nothing is lost by not understanding it. Nothing here is written.
"""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from proctor.record.completeness import is_sha256
from proctor.record.cost import CostRecord
from proctor.record.fields import NonEmptyStr, Object, Part, Text, Timestamp
from proctor.record.model import (
    AgentOutput,
    AgentReference,
    EnvironmentSnapshot,
    EvaluationResult,
    TimingRecord,
)

_TERMINAL = ("completed", "failed", "cancelled", "invalid")
_TOLERANCE = timedelta(milliseconds=1)


def _check_aware(time: datetime) -> datetime:
    if time.utcoffset() is None:
        raise ValueError(f"{time.isoformat()} has no offset from UTC; expected one")
    return time


type AwareTime = Annotated[Timestamp, AfterValidator(_check_aware)]


class ArtifactRef(Part):
    """Bytes by their digest."""

    artifact_id: NonEmptyStr
    """artifacts/sha256/ and the digest, under a directory of its first two digits."""
    sha256: NonEmptyStr
    """Digest of the bytes."""
    size_bytes: Annotated[int, Field(gt=0)]
    """How many."""
    media_type: NonEmptyStr
    """What they are."""

    @model_validator(mode="after")
    def _check_id(self) -> Self:
        if not is_sha256(self.sha256):
            raise ValueError(f"sha256 is {self.sha256[:80]!r}; expected 64 lower-case hex digits")
        expected = f"artifacts/sha256/{self.sha256[:2]}/{self.sha256}"
        if self.artifact_id != expected:
            raise ValueError(f"artifact_id is {self.artifact_id[:120]!r}; expected {expected!r}")
        return self


class InputFile(Part):
    """A file that went in."""

    artifact: ArtifactRef
    """Its bytes."""
    source: Text | None = None
    """Where it came from."""


class TrialInput(Part):
    """What the agent was given."""

    instruction: NonEmptyStr
    """The task's instruction."""
    task_revision: NonEmptyStr
    """What the task consisted of."""
    task_kind: Literal["artifact", "lifecycle", "world"] = "artifact"
    """What kind of task it is."""
    visibility: Literal["public", "holdout"] | None = None
    """Who may see the task."""
    system_prompt: Text | None = None
    """The system prompt, where one was used."""
    input_files: tuple[InputFile, ...] | None = None
    """Files that decide the trial."""


class TrialOutput(Part):
    """What the agent left."""

    agent_output: AgentOutput | None = None
    """The answer that was handed in."""
    raw_output: ArtifactRef | None = None
    """The answer's bytes."""
    conversation: ArtifactRef | None = None
    """The messages as the provider saw them."""
    trajectory: ArtifactRef | None = None
    """What happened, step by step."""
    agent_result: Object | None = None
    """What the harness says about its own run."""
    artifacts: tuple[Object, ...] = ()
    """All files by role."""
    terminated: bool = False
    """The agent ended by itself."""
    truncated: bool = False
    """The agent was cut off."""
    final_reason: NonEmptyStr | None = None
    """Why it ended."""


class Trial(Part):
    """The trial's own document. Agent, model and experiment stand in the manifest."""

    schema_version: Literal[2]
    """Always 2."""
    trial_id: NonEmptyStr
    """Name of the trial."""
    run_id: NonEmptyStr
    """Name of the run, which the manifest is found by."""
    task_id: NonEmptyStr
    """Name of the task."""
    attempt: Annotated[int, Field(ge=1)] = 1
    """Counted from 1."""
    execution_status: Literal["planned", "running", "completed", "failed", "cancelled", "invalid"]
    """How far the agent's work went."""
    evaluation_status: Literal["not_requested", "pending", "completed", "invalid", "failed"]
    """How far scoring went."""
    evidence_status: Literal["not_required", "pending", "verified", "incomplete", "invalid"]
    """How far the evidence was closed."""
    started_at: AwareTime
    """When the trial began."""
    completed_at: AwareTime | None = None
    """When it ended; there exactly when the execution status is a final one."""
    input: TrialInput
    """What the agent was given."""
    output: TrialOutput | None = None
    """What it left."""
    evaluation: EvaluationResult | None = None
    """What it scored."""
    timing: TimingRecord
    """How long it took."""
    cost: CostRecord | None = None
    """What it used."""
    authority_evidence: tuple[Object, ...] = ()
    """Who vouches for what."""
    provider_evidence: Object | None = None
    """What the provider vouches for."""
    extension_refs: tuple[Object, ...] = ()
    """Further documents, adaptation among them."""

    @model_validator(mode="after")
    def _check_statuses(self) -> Self:
        status, scoring = self.execution_status, self.evaluation_status
        if (status in _TERMINAL) != (self.completed_at is not None):
            expected = "completed_at" if status in _TERMINAL else "no completed_at"
            raise ValueError(f"execution_status is {status}; expected {expected}")
        if status == "completed" and self.output is None:
            raise ValueError("execution_status is completed; expected an output")
        if scoring == "completed" and self.evaluation is None:
            raise ValueError("evaluation_status is completed; expected an evaluation")
        if scoring in ("not_requested", "pending") and self.evaluation is not None:
            raise ValueError(f"evaluation_status is {scoring}; expected no evaluation")
        return self

    @model_validator(mode="after")
    def _check_duration(self) -> Self:
        if self.completed_at is None:
            return self
        took = (self.completed_at - self.started_at).total_seconds()
        if abs(took - self.timing.total_seconds) > _TOLERANCE.total_seconds():
            raise ValueError(
                f"timing.total_seconds is {self.timing.total_seconds!r}; "
                f"expected {took!r}, from started_at to completed_at"
            )
        return self


class RepositoryDataset(Part):
    """A dataset that lies in a repository."""

    kind: Literal["repository"]
    """What tells it from the other."""
    dataset_id: NonEmptyStr
    """Its name."""
    source_revision: NonEmptyStr
    """The commit, 40 hex digits."""
    manifest_path: NonEmptyStr
    """Where in the repository."""

    @property
    def text(self) -> str:
        """As late records of the first generation name it."""
        return f"repository:{self.dataset_id}@{self.source_revision}:{self.manifest_path}"


class BundleDataset(Part):
    """A dataset that is an artifact."""

    kind: Literal["bundle"]
    """What tells it from the other."""
    dataset_id: NonEmptyStr
    """Its name."""
    artifact: ArtifactRef
    """Its bytes."""

    @property
    def text(self) -> str:
        """As late records of the first generation name it."""
        return f"bundle:{self.dataset_id}@{self.artifact.sha256}"


class RunManifest(Part):
    """What all trials of a run have in common."""

    schema_version: Literal[2]
    """Always 2."""
    run_id: NonEmptyStr
    """Name of the run."""
    experiment_id: NonEmptyStr
    """Name of the experiment."""
    dataset: Annotated[RepositoryDataset | BundleDataset, Field(discriminator="kind")] | None = None
    """Which dataset."""
    source: Object
    """Which source of the harness."""
    agent: AgentReference
    """Who sat the tasks."""
    execution_environment: EnvironmentSnapshot
    """Where."""
    provider_route: Object
    """Through which provider."""
    expected_authorities: tuple[Object, ...] = ()
    """Who must vouch for what."""
    evaluation_regime: Any = None
    """How it was to be scored."""
    qualification: Object | None = None
    """What the run was to qualify."""
