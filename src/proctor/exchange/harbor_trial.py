"""Make a TrialRecord of a harbor trial directory: complete if everything is pinned, else partial.

harbor records digests of the task and the versions of itself and of the agent. It records neither
the task's files nor the image that it built: for those the task directory is needed.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec
from pydantic import ValidationError

from proctor.errors import JobError, RecordError
from proctor.exchange.trial_sources import (
    ReadBefore,
    Sources,
    load_sources,
)
from proctor.harbor.documents import TimedPhase, TrialDetails
from proctor.harbor.record import (
    NO_MODEL,
    NOT_CONFIGURATION,
    UNRESOLVED,
    RecordSource,
    build_record,
    find_image,
    find_model,
    find_said,
    find_seconds,
    find_span,
    join_instructions,
    make_ending,
    make_timing,
    refer_files,
)
from proctor.record.cost import CostBasis
from proctor.record.document import render_refusal
from proctor.record.ids import check_id
from proctor.record.model import (
    AgentReference,
    EnvironmentSnapshot,
    InputRecord,
    TaskReference,
    TimingRecord,
    TrialRecord,
)
from proctor.record.rules import check_dataset_id, check_record, find_missing
from proctor.reward.score import Unscored
from proctor.traces.entry import Object
from proctor.traces.trace import Trace
from proctor.trial.timeouts import find_limits

LONGEST_SAID: Final = 1 << 20
"""Longest instruction or system prompt in characters. A longer one is only in the trace: otherwise
an agent could make its record too large to seal."""


class RecordRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The trial to make a record of, and what the record contains beyond its files."""

    trial: str
    """The trial's directory."""
    experiment: str
    """The experiment that the record belongs to."""
    task: str | None = None
    """The directory of the task that the trial ran."""
    dataset_id: str | None = None
    """name@version of the task's dataset, or another id of it."""


def make_record(
    request: RecordRequest, before: ReadBefore | None = None
) -> tuple[TrialRecord, CostBasis]:
    """Make the record of a trial, and the source of its cost; no file is hashed."""
    check_id(request.experiment, "experiment")
    if request.dataset_id is not None:
        check_dataset_id(request.dataset_id)
    sources = load_sources(request.trial, request.task, before)
    try:
        source = _make_source(request, sources)
    except ValidationError as error:
        raise RecordError(f"{request.trial}: {render_refusal(error)}") from None
    record, basis = build_record(source)
    if (
        not find_missing(record)
        and (sources.given is None or sources.given.is_compared)
        and _find_total(sources.details) is not None
    ):
        record = record.model_copy(update={"completeness": "complete"})
    check_record(record)
    return record, basis


def _make_source(request: RecordRequest, sources: Sources) -> RecordSource:
    return RecordSource(
        name=sources.name,
        experiment=request.experiment,
        dataset_id=request.dataset_id,
        when=_find_time(sources),
        task=make_task(sources),
        agent=make_agent(sources),
        environment=make_environment(sources),
        inputs=make_inputs(sources),
        timing=time_phases(sources.details),
        directory=str(sources.directory),
        trace=sources.trace,
        has_artifacts=any(path.startswith("artifacts/") for path in sources.files),
        ending=make_ending(
            sources.found.document,
            sources.details,
            rewards=sources.found.trial.verdict.rewards if sources.found.trial.verdict else None,
            reasons=(sources.found.evidence.reason,)
            if isinstance(sources.found.evidence, Unscored)
            else (),
        )
        if sources.found and sources.details
        else None,
    )


def _list_phases(details: TrialDetails) -> list[TimedPhase | None]:
    phases = [details.environment_setup, details.agent_setup]
    phases += [details.agent_execution, details.verifier]
    steps = details.step_results or ()
    return phases + [phase for each in steps for phase in (each.agent_execution, each.verifier)]


def _find_total(details: TrialDetails | None) -> float | None:
    """Seconds of the whole trial: as recorded, else from its first known phase to its last."""
    if details is None:
        return None
    total = find_seconds(details)
    return find_span(_list_phases(details)) if total is None else total


def time_phases(details: TrialDetails | None) -> TimingRecord:
    """The times of a trial by phase, as its record has them; the total is 0.0 if unknown."""
    if details is None:
        return TimingRecord(total_seconds=0.0)
    return make_timing(details, _find_total(details))


def _find_time(sources: Sources) -> datetime:
    """When the trial ended, else when it started, else when its job was planned."""
    details, lock = sources.details, sources.lock
    times = [details.finished_at, details.started_at] if details else []
    times += [_parse_time(lock.created_at, sources)] if lock and lock.created_at else []
    known = next((time for time in times if time is not None), None)
    if known is None:
        raise JobError(
            f"{sources.directory}: its time is not recorded; expected times in result.json, or "
            "a lock.json in the job around it"
        )
    known = known if known.tzinfo else known.replace(tzinfo=UTC)
    try:
        known.astimezone(UTC)
    except OverflowError:
        raise JobError(f"{sources.directory}: its time {known} is out of range in UTC") from None
    return known


def _parse_time(text: str, sources: Sources) -> datetime:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError as error:
        raise JobError(
            f"{sources.directory}: created_at of the job's lock.json is {text!r}: {error}"
        ) from error


# Task, agent, environment, inputs


def make_task(sources: Sources) -> TaskReference:
    """The task, with harbor's checksum of it."""
    document, given = sources.document, sources.given
    checksum = document.task_checksum if document else None
    if given is not None:
        checksum = given.digests.task_checksum
    # Directories with equal files have equal digests, so the name comes from the trial.
    name = document.task_name if document else _find_task_name(sources)
    return TaskReference(task_id=name, task_revision=checksum or UNRESOLVED)


def _find_task_name(sources: Sources) -> str:
    task = sources.asked.task
    return (task.name or (task.path or "").rstrip("/").rpartition("/")[2]) or UNRESOLVED


def make_agent(sources: Sources) -> AgentReference:
    """The agent, the model that answered, and their settings."""
    document, asked = sources.document, sources.asked.agent
    version = sources.details.agent_info.version if sources.details else None
    models = sources.trace.models if sources.trace else ()
    reported = document.agent_info.model_info if document else None
    requested = find_model(asked.model_name, reported)
    return AgentReference(
        adapter=document.agent_info.name
        if document
        else asked.name or asked.import_path or UNRESOLVED,
        model=models[0] if len(models) == 1 else requested or NO_MODEL,
        adapter_revision=version if version and version.strip() not in ("", "unknown") else None,
        configuration=make_configuration(sources),
    )


def make_configuration(sources: Sources) -> Object:
    """The requested settings, and, if the task is given, the limits that follow from both."""
    asked = {key: value for key, value in sources.config.items() if key not in NOT_CONFIGURATION}
    if sources.given is None:
        return asked
    return asked | {"limits": find_limits(sources.asked, sources.given.task.config)}


def make_environment(sources: Sources) -> EnvironmentSnapshot:
    """The environment, with the versions that the job recorded."""
    written = sources.config.get("environment")
    asked = written if isinstance(written, dict) else {}
    versions: dict[str, str] = {}
    if sources.lock and sources.lock.harbor.version:
        versions["harbor"] = sources.lock.harbor.version
        if sources.lock.harbor.git_commit_hash:
            versions["harbor-commit"] = sources.lock.harbor.git_commit_hash
    return EnvironmentSnapshot(
        runtime_image=_find_image(sources),
        compute_backend=str(asked.get("import_path") or asked.get("type") or "docker"),
        tool_versions=versions or None,
    )


def _find_image(sources: Sources) -> str:
    given = sources.given
    return find_image(given.task, given.files) if given else UNRESOLVED


def make_inputs(sources: Sources) -> InputRecord:
    """The agent's inputs; without the task, as much as the trace contains."""
    given, trace = sources.given, sources.trace
    first = join_instructions(given.task) if given else _shorten(trace, "user")
    return InputRecord(
        instruction=first or UNRESOLVED,
        system_prompt=_shorten(trace, "system"),
        input_files=refer_files(given.files) if given else None,
    )


def _shorten(trace: Trace | None, role: str) -> str | None:
    said = find_said(trace, role)
    return said if said is not None and len(said) <= LONGEST_SAID else None
