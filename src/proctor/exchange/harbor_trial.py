"""A harbor trial directory to a TrialRecord: complete where everything is pinned, else partial."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
from pydantic import ValidationError

from proctor.errors import JobError, RecordError
from proctor.exchange.made import MadeRecord, PinnedFile, Pins
from proctor.exchange.trial_cost import make_trial_cost
from proctor.exchange.trial_evidence import pin_files
from proctor.exchange.trial_inputs import (
    make_agent,
    make_environment,
    make_inputs,
    make_pins,
    make_task,
)
from proctor.exchange.trial_redaction import redact_record, redact_rest, redact_sources
from proctor.exchange.trial_results import make_evaluation, make_outputs
from proctor.exchange.trial_sources import ReadBefore, Sources, load_sources
from proctor.exchange.trial_timing import find_total, make_timing
from proctor.record.cost import CostBasis
from proctor.record.document import render_refusal
from proctor.record.ids import check_id, make_id
from proctor.record.model import AdaptationProvenance, TrialRecord
from proctor.record.rules import Missing, check_dataset_id, check_record, find_missing
from proctor.traces.entry import TraceKind
from proctor.traces.media import Medium, collect_media, places_beside
from proctor.traces.writer import Redactor


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be made of which trial."""

    trial: str
    """The trial's directory."""
    experiment: str
    """The experiment that the record belongs to."""
    task: str | None = None
    """The directory of the task that the trial sat."""
    dataset_id: str | None = None
    """name@version of the dataset that the task is from, or another name that it goes by."""
    adaptation: AdaptationProvenance | None = None


def make_record(wish: Wish, redactor: Redactor | None = None) -> MadeRecord:
    """The record of a trial, with what it rests on; secrets do not get into it.

    Raises:
        InputError: the trial or the task cannot be read, or do not belong together.
    """
    _check_wish(wish)
    sources = load_sources(wish.trial, wish.task)
    sources = redact_sources(sources, redactor) if redactor else sources
    notes = list(sources.evidence.notes)
    record, basis, missing = _make_whole(wish, sources, notes)
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


def make_bare_record(wish: Wish, before: ReadBefore | None = None) -> tuple[TrialRecord, CostBasis]:
    """The same record without what it rests on, so that no file is hashed.

    Raises:
        InputError: the trial or the task cannot be read, or do not belong together.
    """
    _check_wish(wish)
    sources = load_sources(wish.trial, wish.task, before)
    record, basis, _ = _make_whole(wish, sources, [])
    check_record(record)
    return record, basis


def _check_wish(wish: Wish) -> None:
    check_id(wish.experiment, "experiment")
    if wish.dataset_id is not None:
        check_dataset_id(wish.dataset_id)


def _make_whole(
    wish: Wish, sources: Sources, notes: list[str]
) -> tuple[TrialRecord, CostBasis, list[Missing]]:
    """The record, where its money comes from, and what keeps it from being complete."""
    try:
        record, basis = _make(wish, sources, notes)
    except ValidationError as error:
        raise RecordError(f"{wish.trial}: {render_refusal(error)}") from None
    missing = _find_missing(record, sources)
    if not missing:
        record = record.model_copy(update={"completeness": "complete"})
    return record, basis, missing


def _make(wish: Wish, sources: Sources, notes: list[str]) -> tuple[TrialRecord, CostBasis]:
    """The record, partial as yet, and where its amount of money comes from."""
    when = _find_time(sources)
    agent = make_agent(sources)
    cost, basis = make_trial_cost(sources, agent.model, when, notes)
    record = TrialRecord(
        trial_id=make_id(sources.name),
        experiment_id=wish.experiment,
        dataset_id=wish.dataset_id,
        timestamp=when,
        task=make_task(sources),
        agent=agent,
        environment=make_environment(sources),
        inputs=make_inputs(sources),
        outputs=make_outputs(sources),
        evaluation=make_evaluation(sources, notes),
        timing=make_timing(sources.account, notes),
        cost=cost,
        adaptation=wish.adaptation,
        completeness="partial",
    )
    return record, basis


def _find_time(sources: Sources) -> datetime:
    """When the trial ended, else when it began, else when its job was planned."""
    account, lock = sources.account, sources.lock
    times = [account.finished_at, account.started_at] if account else []
    times += [lock.created_at] if lock else []
    known = next((time for time in times if time is not None), None)
    if known is None:
        raise JobError(
            f"{sources.directory}: nothing says when it ran; expected times in result.json, or "
            "a lock.json in the job around it"
        )
    known = known if known.tzinfo else known.replace(tzinfo=UTC)
    try:
        known.astimezone(UTC)
    except OverflowError:
        raise JobError(f"{sources.directory}: its time is {known}, which is none in UTC") from None
    return known


def _find_missing(record: TrialRecord, sources: Sources) -> list[Missing]:
    """What keeps the record partial, with the remedy that a harbor trial has."""
    remedies = {
        "agent.adapter_revision": "an agent that tells harbor its version",
        "environment.tool_versions": "the lock.json that harbor writes into the job",
        "inputs.input_files": "--task DIR with the task that the trial sat",
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
    if sources.account is None:
        missing.append(
            Missing("evaluation", "is missing: the trial wrote no result.json", "another attempt")
        )
    if find_total(sources.account) is None:
        missing.append(
            Missing("timing.total_seconds", "is not known", "times in the trial's result.json")
        )
    return missing


def _name_medium(root: str, medium: Medium) -> str:
    """Where a medium lies, relative to the trial's directory."""
    place = medium.beside.removeprefix(f"{root}/") if medium.beside else "artifacts"
    return f"{place}/{medium.path}"


def _pin_trace(
    pins: Pins, files: tuple[PinnedFile, ...], sources: Sources, notes: list[str]
) -> Pins:
    """The pins with the digests of the trace and of what it shows."""
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
    # Two names of one file, such as a.png and ./a.png, are one pin.
    media = dict.fromkeys(
        PinnedFile(_name_medium(root, each), each.sha256, each.size)
        for each in shown.files
        if each.path is not None
    )
    at = "line" if trace.kind is TraceKind.TRAJECTORY else "entry"
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
    """What the record cannot vouch for."""
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
    """A model without its provider, which endpoints leave out."""
    return model.rpartition("/")[2]
