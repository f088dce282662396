"""Read the second generation's two documents, a trial and its run's manifest, into one record.

Checks the parts that a record can hold, and the rules between statuses and times. What a record has
no field for (authorities, qualification, regimes) is accepted as free-form JSON and listed by path;
the original bytes are kept with the record. Such a record is always `partial`, because the second
generation does not promise completeness. Without an evaluation the reward is null.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from proctor.diagnostic import Diagnostic
from proctor.digest import is_digest
from proctor.errors import RecordError
from proctor.record.cost import CostRecord
from proctor.record.document import check_strict, parse_document, render_path, validate
from proctor.record.fields import Array, NonEmptyStr, Object, Part, Text, Timestamp
from proctor.record.model import (
    AgentOutput,
    AgentReference,
    EnvironmentSnapshot,
    EvaluationResult,
    FileReference,
    InputRecord,
    OutputRecord,
    TaskReference,
    TimingRecord,
    TrialRecord,
    ValidityCheck,
)
from proctor.record.read import LoadedRecord
from proctor.record.rules import find_problems

_TERMINAL = ("completed", "failed", "cancelled", "invalid")
_TOLERANCE = timedelta(milliseconds=1)


def _check_aware(time: datetime) -> datetime:
    if time.utcoffset() is None:
        raise ValueError(f"{time.isoformat()} has no offset from UTC; expected one")
    return time


type AwareTime = Annotated[Timestamp, AfterValidator(_check_aware)]


class ArtifactRef(Part):
    """A reference to bytes by their digest."""

    artifact_id: NonEmptyStr
    """artifacts/sha256/ and the digest, under a directory of its first two digits."""
    sha256: NonEmptyStr
    """Digest of the bytes."""
    size_bytes: Annotated[int, Field(gt=0)]
    """Number of bytes."""
    media_type: NonEmptyStr
    """Media type."""

    @model_validator(mode="after")
    def _check_id(self) -> Self:
        if not is_digest(self.sha256):
            raise ValueError(f"sha256 is {self.sha256[:80]!r}; expected 64 lower-case hex digits")
        expected = f"artifacts/sha256/{self.sha256[:2]}/{self.sha256}"
        if self.artifact_id != expected:
            raise ValueError(f"artifact_id is {self.artifact_id[:120]!r}; expected {expected!r}")
        return self


class InputFile(Part):
    """An input file of the trial."""

    artifact: ArtifactRef
    """Its contents."""
    source: Text | None = None
    """Where it came from."""


class TrialInput(Part):
    """What the agent was given."""

    instruction: NonEmptyStr
    """The task's instruction."""
    task_revision: NonEmptyStr
    """Digest or revision of the task's contents."""
    task_kind: Literal["artifact", "lifecycle", "world"] = "artifact"
    """Kind of task."""
    visibility: Literal["public", "holdout"] | None = None
    """Whether the task is public."""
    system_prompt: Text | None = None
    """The system prompt, if one was used."""
    input_files: Array[InputFile] | None = None
    """Files that decide the trial."""


class TrialOutput(Part):
    """The agent's output."""

    agent_output: AgentOutput | None = None
    """The submitted answer."""
    raw_output: ArtifactRef | None = None
    """The answer's bytes."""
    conversation: ArtifactRef | None = None
    """The messages that the provider saw."""
    trajectory: ArtifactRef | None = None
    """The steps of the run."""
    agent_result: Object | None = None
    """The harness's report about its own run."""
    artifacts: Array[Object] = ()
    """All files by role."""
    terminated: bool = False
    """The agent ended by itself."""
    truncated: bool = False
    """The agent was cut off."""
    final_reason: NonEmptyStr | None = None
    """Why it ended."""


class TrialV2(Part):
    """The trial's own document. Agent, model and experiment are in the manifest."""

    schema_version: Literal[2]
    """Always 2."""
    trial_id: NonEmptyStr
    """Name of the trial."""
    run_id: NonEmptyStr
    """Name of the run, which the manifest is found by."""
    task_id: NonEmptyStr
    """Name of the task."""
    attempt: Annotated[int, Field(ge=1)] = 1
    """Number of the attempt, from 1."""
    execution_status: Literal["planned", "running", "completed", "failed", "cancelled", "invalid"]
    """Progress of the agent's run."""
    evaluation_status: Literal["not_requested", "pending", "completed", "invalid", "failed"]
    """Progress of scoring."""
    evidence_status: Literal["not_required", "pending", "verified", "incomplete", "invalid"]
    """Progress of collecting evidence."""
    started_at: AwareTime
    """Start of the trial."""
    completed_at: AwareTime | None = None
    """End of the trial; set exactly when the execution status is final."""
    input: TrialInput
    """What the agent was given."""
    output: TrialOutput | None = None
    """The agent's output."""
    evaluation: EvaluationResult | None = None
    """The score."""
    timing: TimingRecord
    """Durations."""
    cost: CostRecord | None = None
    """Tokens and money."""
    authority_evidence: Array[Object] = ()
    """Attestations by authorities."""
    provider_evidence: Object | None = None
    """Attestation by the provider."""
    extension_refs: Array[Object] = ()
    """Further documents, such as adaptation."""

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
    """A dataset in a repository."""

    kind: Literal["repository"]
    """Discriminator of the union."""
    dataset_id: NonEmptyStr
    """Its name."""
    source_revision: NonEmptyStr
    """Git commit, 40 hex digits."""
    manifest_path: NonEmptyStr
    """Path in the repository."""

    @property
    def text(self) -> str:
        """Its id in late records of the first generation."""
        return f"repository:{self.dataset_id}@{self.source_revision}:{self.manifest_path}"


class BundleDataset(Part):
    """A dataset stored as an artifact."""

    kind: Literal["bundle"]
    """Discriminator of the union."""
    dataset_id: NonEmptyStr
    """Its name."""
    artifact: ArtifactRef
    """Its contents."""

    @property
    def text(self) -> str:
        """Its id in late records of the first generation."""
        return f"bundle:{self.dataset_id}@{self.artifact.sha256}"


class RunManifest(Part):
    """The settings that all trials of a run share."""

    schema_version: Literal[2]
    """Always 2."""
    run_id: NonEmptyStr
    """Name of the run."""
    experiment_id: NonEmptyStr
    """Name of the experiment."""
    dataset: Annotated[RepositoryDataset | BundleDataset, Field(discriminator="kind")] | None = None
    """The dataset."""
    source: Object
    """The harness's source."""
    agent: AgentReference
    """The agent."""
    execution_environment: EnvironmentSnapshot
    """The environment."""
    provider_route: Object
    """The provider that was used."""
    expected_authorities: Array[Object] = ()
    """Authorities whose attestations are required."""
    evaluation_regime: Any = None
    """How trials are to be scored."""
    qualification: Object | None = None
    """What the run is to qualify for."""


UNKNOWN: Final = "unknown"
"""Placeholder in a leniently read record for values of a missing manifest."""

_TRIAL_ONLY: Final = (
    "run_id",
    "attempt",
    "execution_status",
    "evaluation_status",
    "evidence_status",
    "completed_at",
    "input.task_kind",
    "input.visibility",
    "output.artifacts",
    "output.terminated",
    "output.truncated",
    "output.final_reason",
    "authority_evidence",
    "provider_evidence",
    "extension_refs",
)
_MANIFEST_ONLY: Final = (
    "source",
    "provider_route",
    "expected_authorities",
    "evaluation_regime",
    "qualification",
)


def parse_g2(
    record: bytes, manifest: bytes | None, source: str, *, salvage: bool = False
) -> LoadedRecord:
    """Read a trial with its manifest. Without a manifest, a lenient reader fills in "unknown"."""
    document = parse_document(record, source)
    notes = [*document.diagnostics]
    trial, kept = validate(TrialV2, document.tree, source)
    run, run_kept = None, []
    if manifest is not None:
        where = f"{source} (manifest)"
        second = parse_document(manifest, where)
        notes += second.diagnostics
        run, taken = validate(RunManifest, second.tree, where)
        run_kept = [f"manifest.{render_path(item.path)}" for item in taken]
        if run.run_id != trial.run_id:
            raise RecordError(
                f"{source}: the trial belongs to run {trial.run_id!r}; "
                f"the manifest belongs to {run.run_id!r}"
            )
    else:
        notes.append(_describe_missing_manifest(trial))
    unknown = [render_path(item.path) for item in kept] + run_kept
    notes += [_describe_unknown(path) for path in unknown if path not in _SHARED_ADDITIONS]
    made = TrialRecord(
        trial_id=trial.trial_id,
        experiment_id=run.experiment_id if run else UNKNOWN,
        dataset_id=run.dataset.text if run and run.dataset else None,
        timestamp=trial.started_at,
        task=TaskReference(task_id=trial.task_id, task_revision=trial.input.task_revision),
        agent=run.agent if run else AgentReference(adapter=UNKNOWN, model=UNKNOWN),
        environment=(
            run.execution_environment
            if run
            else EnvironmentSnapshot(runtime_image=UNKNOWN, compute_backend=UNKNOWN)
        ),
        inputs=_make_inputs(trial.input),
        outputs=_make_outputs(trial.output or TrialOutput()),
        evaluation=trial.evaluation or _make_unscored(trial),
        timing=trial.timing,
        cost=trial.cost,
        completeness="partial",
    )
    notes += find_problems(made)
    if not salvage:
        check_strict(made, notes, source)
    return LoadedRecord(
        generation="G2",
        record=made,
        original=record,
        document=document.tree,
        manifest=manifest,
        without_place=(*_find_without_place(trial, run), *unknown),
        diagnostics=tuple(notes),
    )


# Keys that the second generation adds to parts it shares with the first.
_SHARED_ADDITIONS = frozenset({"cost.model_calls", "evaluation.stewardship"})


def _describe_missing_manifest(trial: TrialV2) -> Diagnostic:
    message = (
        f"has no manifest of its run {trial.run_id!r}; experiment, dataset, agent and environment "
        "are only recorded there"
    )
    return Diagnostic("no-manifest", message)


def _describe_unknown(path: str) -> Diagnostic:
    return Diagnostic("unknown-key", f"{path} is not a key of the format")


def _make_inputs(given: TrialInput) -> InputRecord:
    files = given.input_files
    return InputRecord(
        instruction=given.instruction,
        system_prompt=given.system_prompt,
        input_files=None
        if files is None
        else tuple(
            FileReference(
                path=file.artifact.artifact_id, hash=file.artifact.sha256, source=file.source
            )
            for file in files
        ),
    )


def _make_outputs(output: TrialOutput) -> OutputRecord:
    return OutputRecord(
        agent_output=output.agent_output,
        raw_output_path=_path_of(output.raw_output),
        conversation_path=_path_of(output.conversation),
        trajectory_path=_path_of(output.trajectory),
        agent_result=output.agent_result,
    )


def _path_of(artifact: ArtifactRef | None) -> str | None:
    return None if artifact is None else artifact.artifact_id


def _make_unscored(trial: TrialV2) -> EvaluationResult:
    why = f"not scored: evaluation_status is {trial.evaluation_status}"
    validity = ValidityCheck(
        output_parseable=False, schema_valid=False, verifier_completed=False, errors=(why,)
    )
    return EvaluationResult(reward=None, validity=validity)


def _find_without_place(trial: TrialV2, run: RunManifest | None) -> Iterator[str]:
    for path in _TRIAL_ONLY:
        if _value_at(trial, path) not in (None, (), False):
            yield path
    for path in _MANIFEST_ONLY if run else ():
        if _value_at(run, path) not in (None, ()):
            yield f"manifest.{path}"


def _value_at(document: object, path: str) -> object:
    for part in path.split("."):
        document = getattr(document, part, None)
    return document
