"""The second generation's two documents, a trial and the manifest of its run, read into one record.

The parts that a record can hold, and the rules between statuses and times, are checked. What has no
place in a record (authorities, qualification, regimes) is taken as free JSON and listed by path;
the original bytes are kept beside the record. Such a record is always `partial`, because the second
generation makes no promise of completeness. Without an evaluation the reward is null.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from proctor.diagnostic import Diagnostic
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
from proctor.record.rules import find_problems, is_sha256

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
    input_files: Array[InputFile] | None = None
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
    authority_evidence: Array[Object] = ()
    """Who vouches for what."""
    provider_evidence: Object | None = None
    """What the provider vouches for."""
    extension_refs: Array[Object] = ()
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
    """The agent that ran."""
    execution_environment: EnvironmentSnapshot
    """Where."""
    provider_route: Object
    """Through which provider."""
    expected_authorities: Array[Object] = ()
    """Who must vouch for what."""
    evaluation_regime: Any = None
    """How it was to be scored."""
    qualification: Object | None = None
    """What the run was to qualify."""


UNKNOWN: Final = "unknown"
"""Used in a salvaged record for what only the missing manifest says."""

_HOMELESS: Final = (
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
_HOMELESS_IN_MANIFEST: Final = (
    "source",
    "provider_route",
    "expected_authorities",
    "evaluation_regime",
    "qualification",
)


def parse_g2(
    record: bytes, manifest: bytes | None, source: str, *, salvage: bool = False
) -> LoadedRecord:
    """A trial with its manifest. Without one, a salvaging reader puts "unknown" for its fields.

    Raises:
        RecordError: a document breaks its format, the manifest is another run's, or, when strict,
            there is none.
    """
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
        _check_same_run(trial, run, source)
    else:
        notes.append(_describe_lonely(trial))
    unknown = [render_path(item.path) for item in kept] + run_kept
    notes += [_describe_unknown(path) for path in unknown if path not in _FAMILIAR]
    made = _make_record(trial, run)
    notes += find_problems(made)
    if not salvage:
        check_strict(made, notes, source)
    return LoadedRecord(
        generation="G2",
        record=made,
        original=record,
        document=document.tree,
        manifest=manifest,
        without_place=(*_find_homeless(trial, run), *unknown),
        diagnostics=tuple(notes),
    )


_FAMILIAR = frozenset({"cost.model_calls", "evaluation.stewardship"})
"""Keys of the second generation inside parts that are otherwise the first's."""


def _check_same_run(trial: TrialV2, run: RunManifest, source: str) -> None:
    if run.run_id != trial.run_id:
        raise RecordError(
            f"{source}: the trial belongs to run {trial.run_id!r}; "
            f"the manifest is of {run.run_id!r}"
        )


def _describe_lonely(trial: TrialV2) -> Diagnostic:
    message = (
        f"has no manifest of its run {trial.run_id!r}; experiment, dataset, agent and environment "
        "stand only there"
    )
    return Diagnostic("no-manifest", message)


def _describe_unknown(path: str) -> Diagnostic:
    return Diagnostic("unknown-key", f"{path} is no key of the format")


def _make_record(trial: TrialV2, run: RunManifest | None) -> TrialRecord:
    return TrialRecord(
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


def _find_homeless(trial: TrialV2, run: RunManifest | None) -> Iterator[str]:
    for path in _HOMELESS:
        if _value_at(trial, path) not in (None, (), False):
            yield path
    for path in _HOMELESS_IN_MANIFEST if run else ():
        if _value_at(run, path) not in (None, ()):
            yield f"manifest.{path}"


def _value_at(document: object, path: str) -> object:
    for part in path.split("."):
        document = getattr(document, part, None)
    return document
