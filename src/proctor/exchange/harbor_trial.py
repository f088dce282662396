"""Make a TrialRecord of a harbor trial directory: complete if everything is pinned, else partial.

harbor records digests of the task and the versions of itself and of the agent. It records neither
the task's files nor the image that it built: for those the task directory is needed.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from pydantic import ValidationError

from proctor.errors import JobError, RecordError
from proctor.exchange.trial_sources import (
    MadeRecord,
    PinnedFile,
    Pins,
    ReadBefore,
    Sources,
    load_sources,
    pin_files,
    redact_record,
    redact_rest,
    redact_sources,
)
from proctor.harbor.documents import TimedPhase, TrialDetails
from proctor.harbor.record import (
    BUILT_FROM,
    NO_MODEL,
    NOT_CONFIGURATION,
    UNRESOLVED,
    Ending,
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
from proctor.harbor.trial import FoundTrial
from proctor.record.cost import CostBasis
from proctor.record.document import render_refusal
from proctor.record.fields import configuration_digest
from proctor.record.ids import check_id
from proctor.record.model import (
    AdaptationProvenance,
    AgentReference,
    EnvironmentSnapshot,
    InputRecord,
    TaskReference,
    TimingRecord,
    TrialRecord,
)
from proctor.record.rules import Missing, check_dataset_id, check_record, find_missing
from proctor.reward.score import Unscored
from proctor.traces.entry import Object
from proctor.traces.media import Medium, collect_media, places_beside
from proctor.traces.trace import Trace
from proctor.traces.writer import Redactor
from proctor.trial.timeouts import find_limits

LONGEST_SAID: Final = 1 << 20
"""Longest instruction or system prompt in characters. A longer one is only in the trace: otherwise
an agent could make its record too large to seal."""
_PINNED_IMAGE: Final = re.compile(r"@(sha256:[0-9a-f]{64})$")


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
    adaptation: AdaptationProvenance | None = None


def make_record(request: RecordRequest, redactor: Redactor | None = None) -> MadeRecord:
    """Make the record of a trial, with its pins and evidence; secrets are redacted."""
    _check(request)
    sources = load_sources(request.trial, request.task)
    sources = redact_sources(sources, redactor) if redactor else sources
    notes = list(sources.evidence.notes)
    record, basis, missing = _make_whole(request, sources, notes)
    record = redact_record(record, redactor) if redactor else record
    check_record(record)
    files = pin_files(sources.evidence.files)
    pins = make_pins(sources, record.agent.configuration)
    pins = _pin_trace(pins, files, sources, notes)
    notes += _find_doubts(sources, pins)
    made = MadeRecord(
        record=record,
        pins=pins,
        cost_basis=basis,
        evidence=files,
        missing=tuple(missing),
        notes=tuple(notes),
    )
    return redact_rest(made, redactor) if redactor else made


def make_bare_record(
    request: RecordRequest, before: ReadBefore | None = None
) -> tuple[TrialRecord, CostBasis]:
    """Make the same record without pins and evidence, so that no file is hashed."""
    _check(request)
    sources = load_sources(request.trial, request.task, before)
    record, basis, _ = _make_whole(request, sources, [])
    check_record(record)
    return record, basis


def _check(request: RecordRequest) -> None:
    check_id(request.experiment, "experiment")
    if request.dataset_id is not None:
        check_dataset_id(request.dataset_id)


def _make_whole(
    request: RecordRequest, sources: Sources, notes: list[str]
) -> tuple[TrialRecord, CostBasis, list[Missing]]:
    """Make the record, the source of its cost, and the list of what it lacks to be complete."""
    try:
        source = _make_source(request, sources)
    except ValidationError as error:
        raise RecordError(f"{request.trial}: {render_refusal(error)}") from None
    record, basis = build_record(source, notes)
    notes += _find_time_notes(sources.details)
    missing = _find_missing(record, sources)
    if not missing:
        record = record.model_copy(update={"completeness": "complete"})
    return record, basis, missing


def _make_source(request: RecordRequest, sources: Sources) -> RecordSource:
    return RecordSource(
        name=sources.name,
        experiment=request.experiment,
        dataset_id=request.dataset_id,
        adaptation=request.adaptation,
        when=_find_time(sources),
        task=make_task(sources),
        agent=make_agent(sources),
        environment=make_environment(sources),
        inputs=make_inputs(sources),
        timing=time_phases(sources.details),
        directory=str(sources.directory),
        trace=sources.evidence.trace,
        has_artifacts=any(path.startswith("artifacts/") for path in sources.evidence.files),
        ending=_find_ending(sources.found, sources.details)
        if sources.found and sources.details
        else None,
    )


def _find_ending(found: FoundTrial, details: TrialDetails) -> Ending:
    """How the trial ended; the rewards that count are those of the reward files."""
    claimed = "result.json claims other rewards than the reward files give; theirs count"
    return make_ending(
        found.document,
        details,
        rewards=found.trial.verdict.rewards if found.trial.verdict else None,
        reasons=(found.evidence.reason,) if isinstance(found.evidence, Unscored) else (),
        notes=() if found.follows else (claimed,),
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


def _find_time_notes(details: TrialDetails | None) -> list[str]:
    if _find_total(details) is None:
        return ["how long the trial took is not recorded; timing.total_seconds is 0.0"]
    if details is not None and find_seconds(details) is None:
        return [
            "when the trial began and ended is not recorded; timing.total_seconds is from the "
            "beginning of its first known phase to the end of the last"
        ]
    return []


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


def _find_missing(record: TrialRecord, sources: Sources) -> list[Missing]:
    """What keeps the record partial, with the remedy for a harbor trial."""
    remedies = {
        "agent.adapter_revision": "an agent that reports its version to harbor",
        "environment.tool_versions": "the lock.json that harbor writes into the job",
        "inputs.input_files": "--task DIR with the task that the trial ran",
    }
    missing = [Missing(each.field, each.why, remedies[each.field]) for each in find_missing(record)]
    if sources.given and not sources.given.is_compared:
        missing.append(
            Missing(
                "task.task_revision",
                "could not be compared with what the trial ran",
                "a digest of the task in the trial's result.json or the job's lock.json",
            )
        )
    if sources.details is None:
        missing.append(
            Missing("evaluation", "is missing: the trial wrote no result.json", "another attempt")
        )
    if _find_total(sources.details) is None:
        missing.append(
            Missing("timing.total_seconds", "is not known", "times in the trial's result.json")
        )
    return missing


def _name_medium(root: str, medium: Medium) -> str:
    """Path of a media file, relative to the trial's directory."""
    place = medium.beside.removeprefix(f"{root}/") if medium.beside else "artifacts"
    return f"{place}/{medium.path}"


def _pin_trace(
    pins: Pins, files: tuple[PinnedFile, ...], sources: Sources, notes: list[str]
) -> Pins:
    """Add the digests of the trace and its media to the pins."""
    trace = sources.evidence.trace
    if trace is None:
        return pins
    name = Path(trace.path).resolve().relative_to(sources.directory).as_posix()
    lines = trace.lines or range(1, len(trace.entries) + 1)
    root = str(sources.directory)
    shown = collect_media(
        zip(lines, trace.entries, strict=True),
        f"{root}/artifacts",
        places_beside(f"{root}/agent") if name.startswith("agent/") else (),
    )
    inside = {file.path for file in files}
    # Two spellings of one path, such as a.png and ./a.png, are one pin.
    media = dict.fromkeys(
        PinnedFile(_name_medium(root, each), each.sha256, each.size)
        for each in shown.files
        if each.path is not None
    )
    at = "line" if trace.kind.is_lines else "entry"
    notes += [f"{name}, {at} {each.line}: {each.message}" for each in shown.missing]
    notes += [
        f"{name} names {each.path}, which is outside the trial"
        for each in media
        if each.path not in inside
    ]
    notes += [f"{name}: {each}" for each in trace.diagnostics if each.is_problem]
    return msgspec.structs.replace(
        pins,
        trace=next(file for file in files if file.path == name),
        media=tuple(each for each in media if each.path in inside),
    )


def _find_doubts(sources: Sources, pins: Pins) -> list[str]:
    """What the record cannot prove."""
    doubts = []
    if "record.json" in sources.evidence.files:
        doubts.append(
            "proctor ran this trial: its own record.json also pins the image and the agent's "
            "revision; the one made here rests on harbor's files alone"
        )
    elif pins.image_digest is None:
        doubts.append("harbor does not record the image it ran; no image digest is pinned")
    if sources.given and not sources.given.is_compared:
        doubts.append("the trial recorded no digest of its task; --task could not be compared")
    if sources.config.get("extra_instruction_paths"):
        doubts.append("the agent got further instructions that are not in the record")
    reported, requested = pins.models_reported, pins.model_requested
    if len(reported) > 1:
        doubts.append(f"several models answered: {', '.join(reported)}")
    elif reported and requested and _bare(reported[0]) != _bare(requested):
        doubts.append(f"{requested} was asked for, {reported[0]} answered")
    return doubts


def _bare(model: str) -> str:
    """A model's name without its provider, which endpoints omit."""
    return model.rpartition("/")[2]


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
    models = find_models_reported(sources)
    requested = find_model_requested(sources)
    return AgentReference(
        adapter=document.agent_info.name
        if document
        else asked.name or asked.import_path or UNRESOLVED,
        model=models[0] if len(models) == 1 else requested or NO_MODEL,
        adapter_revision=version if version and version.strip() not in ("", "unknown") else None,
        configuration=make_configuration(sources),
    )


def find_models_reported(sources: Sources) -> tuple[str, ...]:
    """The models that answered, according to the trace."""
    return sources.evidence.trace.models if sources.evidence.trace else ()


def find_model_requested(sources: Sources) -> str | None:
    """The requested model, with its provider."""
    reported = sources.document.agent_info.model_info if sources.document else None
    return find_model(sources.asked.agent.model_name, reported)


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
    given, trace = sources.given, sources.evidence.trace
    first = join_instructions(given.task) if given else _shorten(trace, "user")
    return InputRecord(
        instruction=first or UNRESOLVED,
        system_prompt=_shorten(trace, "system"),
        input_files=refer_files(given.files) if given else None,
    )


def _shorten(trace: Trace | None, role: str) -> str | None:
    said = find_said(trace, role)
    return said if said is not None and len(said) <= LONGEST_SAID else None


def make_pins(sources: Sources, configuration: Object) -> Pins:
    """The digests behind the record, except those of the trace."""
    given, document = sources.given, sources.document
    image = _PINNED_IMAGE.search(_find_image(sources))
    recorded = document.task_checksum if document else None
    return Pins(
        task_checksum=given.digests.task_checksum if given else recorded,
        task_lock_digest=given.digests.lock_digest if given else sources.locked_digest,
        task_dataset_digest=given.digests.dataset_v1 if given else None,
        is_task_recomputed=given is not None,
        configuration_sha256=configuration_digest(configuration),
        image_digest=image[1] if image and not image.string.startswith(BUILT_FROM) else None,
        model_requested=find_model_requested(sources),
        models_reported=find_models_reported(sources),
    )
