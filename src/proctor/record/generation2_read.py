"""A trial of the second generation and its run's manifest, as far as one record can hold them.

What the two documents say and a record has no place for is listed by path; the bytes stay beside
it. Such a record is always `partial`: the second generation makes no promise of completeness, and
nobody's word is put in its mouth. Where no evaluation was made, the reward is null.
"""

from collections.abc import Iterator
from typing import Final

from proctor.diagnostic import Diagnostic
from proctor.errors import RecordError
from proctor.record.document import parse_document
from proctor.record.generation2 import ArtifactRef, RunManifest, Trial, TrialInput, TrialOutput
from proctor.record.loaded import LoadedRecord
from proctor.record.model import (
    AgentReference,
    EnvironmentSnapshot,
    EvaluationResult,
    FileReference,
    InputRecord,
    OutputRecord,
    TaskReference,
    TrialRecord,
    ValidityCheck,
)
from proctor.record.refusal import render_path
from proctor.record.rules import find_problems
from proctor.record.validate import check_strict, validate

UNKNOWN: Final = "unknown"
"""What stands in a salvaged record for what only the missing manifest says."""

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
    trial, kept = validate(Trial, document.tree, source)
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
        manifest=manifest,
        without_place=(*_find_homeless(trial, run), *unknown),
        diagnostics=tuple(notes),
    )


_FAMILIAR = frozenset({"cost.model_calls", "evaluation.stewardship"})
"""Keys of the second generation inside parts that are otherwise the first's."""


def _check_same_run(trial: Trial, run: RunManifest, source: str) -> None:
    if run.run_id != trial.run_id:
        raise RecordError(
            f"{source}: the trial belongs to run {trial.run_id!r}; "
            f"the manifest is of {run.run_id!r}"
        )


def _describe_lonely(trial: Trial) -> Diagnostic:
    message = (
        f"has no manifest of its run {trial.run_id!r}; experiment, dataset, agent and environment "
        "stand only there"
    )
    return Diagnostic("no-manifest", message)


def _describe_unknown(path: str) -> Diagnostic:
    return Diagnostic("unknown-key", f"{path} is no key of the format")


def _make_record(trial: Trial, run: RunManifest | None) -> TrialRecord:
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


def _make_unscored(trial: Trial) -> EvaluationResult:
    why = f"not scored: evaluation_status is {trial.evaluation_status}"
    validity = ValidityCheck(
        output_parseable=False, schema_valid=False, verifier_completed=False, errors=(why,)
    )
    return EvaluationResult(reward=None, validity=validity)


def _find_homeless(trial: Trial, run: RunManifest | None) -> Iterator[str]:
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
