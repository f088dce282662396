"""Make a sealable trial of a sample: a partial record, and its evidence.

    trajectory.jsonl      the messages, with times, tokens and models from the events
    output.md             the answer that was scored, if there is one
    inspect_sample.json   the sample, byte for byte as in the log
    inspect_eval.json     `version`, `eval` and `plan` of the log's header, keys sorted

Deterministic: the same log gives the same bytes. The file's name, the log's status and its results
are not part of a trial: they change while an evaluation runs, and a sample that is in a log is
finished. A missing score is null, never 0; what could not be read is listed in
`outputs.agent_result.notes`.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from proctor.errors import InspectError, RecordError
from proctor.exchange.foreign_values import find_number, find_text, whole_text
from proctor.exchange.harbor_trial import LONGEST_SAID
from proctor.exchange.inspect.log import (
    InspectLog,
    SamplePlace,
    find_log_files,
    load_log,
    parse_json,
)
from proctor.exchange.inspect.messages import read_answer, read_entries
from proctor.exchange.inspect.sample import (
    PROCTOR,
    Reward,
    Sample,
    find_default_scorer,
    find_object,
    keep_storable,
    parse_time,
)
from proctor.exchange.intake import Offer, refuse
from proctor.harbor.record import UNRESOLVED
from proctor.ledger.entry import Slot, Source
from proctor.ledger.sealing import Submission
from proctor.record.cost import (
    COST_KINDS,
    CostBasis,
    CostRecord,
    Spending,
    Usage,
    find_cost,
    make_cost,
    sum_usage,
    unknown_cost,
)
from proctor.record.document import render_refusal
from proctor.record.ids import check_id, make_id, shown_name
from proctor.record.model import (
    AgentOutput,
    AgentReference,
    EnvironmentSnapshot,
    ErrorTag,
    EvaluationResult,
    InputRecord,
    OutputRecord,
    TaskReference,
    TimingRecord,
    TrialRecord,
    ValidityCheck,
)
from proctor.record.read import parse_record, render_record
from proctor.record.reasons import ReasonCode, is_known
from proctor.record.rules import LONGEST_DATASET_ID, check_record
from proctor.sentence import count_of, shown
from proctor.traces.convert import Loaded, render_as_trajectory
from proctor.traces.entry import Entry, Object

SAMPLE: Final = "inspect_sample.json"
EVAL: Final = "inspect_eval.json"
TRAJECTORY: Final = "trajectory.jsonl"
ANSWER: Final = "output.md"
# Settings of an evaluation that decide what the agent could do.
_LIMITS: Final = (
    *("message_limit", "token_limit", "time_limit", "working_limit", "cost_limit", "turn_limit"),
)
_MOST_STEPS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """Choices of the person who imports."""

    experiment: str | None = None
    """None: the name of each log's task."""
    scorer: str | None = None
    """Whose value is the reward, or SCORER:PART; None: the first that the task declares."""


@dataclass(slots=True)
class FoundLogs:
    """The samples that were found in logs."""

    offers: list[Offer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Source:
    """What the samples of a log share."""

    log: InspectLog
    options: InspectOptions
    evaluation: str
    """Id of the evaluation."""
    experiment: str
    header: bytes
    """inspect_eval.json."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A sample with values derived from it."""

    source: _Source
    sample: Sample
    entries: list[Entry]
    answer: str | None
    reward: Reward
    own: TrialRecord | None
    """The record that the sample was exported from, if proctor wrote the log."""

    @property
    def notes(self) -> list[str]:
        return self.sample.notes


def find_samples(paths: Iterable[Path], options: InspectOptions) -> FoundLogs:
    """Find the samples of logs, given as files or directories of them.

    Raises:
        InspectError: there is no log, or none has a sample; one of several that cannot be read
            refuses only itself.
        RecordError: the experiment is not a valid id.
    """
    if options.experiment is not None:
        check_id(options.experiment, "--experiment")
    found = FoundLogs()
    files: dict[Path, Path] = {}
    for path in paths:
        logs, others = find_log_files(path)
        files |= {log.resolve(): log for log in logs}
        if others:
            found.notes.append(f"{path}: {count_of(others, 'other JSON file')} in it, not logs")
    for file in files.values():
        try:
            _offer_samples(load_log(file), options, found)
        except InspectError as error:
            if len(files) == 1:
                raise
            found.offers.append(Offer(shown_name(str(file)), partial(refuse, error)))
    if not found.offers:
        raise InspectError("; ".join(found.notes))
    return found


def _offer_samples(log: InspectLog, options: InspectOptions, found: FoundLogs) -> None:
    reason = f": {shown(whole_text(log.error))}" if log.error else ""
    if not log.samples:
        found.notes.append(f"{log.path}: no samples in it; its status is {log.status}{reason}")
        return
    if log.status != "success":
        found.notes.append(f"{log.path}: its status is {log.status}{reason}; it may lack samples")
    source = _read_source(log, options)
    found.offers += [
        Offer(f"{log.path}: {place.name}", partial(submit_sample, source, place))
        for place in log.samples
    ]


def _read_source(log: InspectLog, options: InspectOptions) -> _Source:
    given = log.eval
    run = [text for key in ("run_id", "task_id") if (text := find_text(given.get(key)))]
    evaluation = find_text(given.get("eval_id"), "-".join(run))
    task = find_text(given.get("task"))
    if evaluation is None or task is None:
        raise InspectError(f"{log.path}: its header has no task, or neither eval_id nor run_id")
    own = find_object(find_object(given.get("metadata")).get(PROCTOR)).get("experiment_id")
    header = {"version": log.version, "eval": given, "plan": log.plan}
    try:
        data = json.dumps(header, sort_keys=True, indent=2).encode() + b"\n"
    except RecursionError as error:
        raise InspectError(f"{log.path}: its header is nested too deeply") from error
    return _Source(
        log=log,
        options=options,
        evaluation=evaluation,
        experiment=options.experiment or make_id(own if isinstance(own, str) and own else task),
        header=data,
    )


def submit_sample(source: _Source, place: SamplePlace) -> Submission:
    """Make the trial of a sample.

    Raises:
        InputError: the sample is invalid; the message says which one and why.
    """
    where = f"{shown_name(str(source.log.path))}: {shown(place.name)}"
    data = place.read()
    value = parse_json(data, where)
    try:
        return _submit(source, value, data, where)
    except (InspectError, RecordError) as error:
        raise InspectError(f"{where}: {error}") from error
    except ValidationError as error:
        raise InspectError(f"{where}: a record cannot store it: {render_refusal(error)}") from error
    except RecursionError as error:
        raise InspectError(f"{where}: nested too deeply") from error


def _submit(source: _Source, value: Any, data: bytes, where: str) -> Submission:
    if not isinstance(value, dict):
        raise InspectError(f"is {shown(value)}; expected an object")
    sample = Sample(value)
    trial = _Trial(
        source=source,
        sample=sample,
        entries=read_entries(sample),
        answer=read_answer(sample),
        reward=sample.reward(find_default_scorer(source.log), source.options.scorer),
        own=_find_own_record(sample),
    )
    record, basis = _make_record(trial)
    check_record(record)
    files = {SAMPLE: data, EVAL: source.header}
    if trial.entries:
        files[TRAJECTORY], _ = render_as_trajectory(Loaded(trial.entries, []))
    if trial.answer is not None:
        files[ANSWER] = trial.answer.encode()
    return Submission(
        record=render_record(record),
        where=where,
        attached=files,
        cost_basis=_find_basis(sample) or basis.kind,
        reason_code=_find_reason(trial),
        slot=Slot(task=record.task.task_id, attempt=sample.epoch - 1),
        source=Source(kind="inspect", name=source.log.name),
    )


def _find_own_record(sample: Sample) -> TrialRecord | None:
    """The record that `proctor export` put into the sample."""
    given = sample.own.get("record")
    if given is None:
        return None
    try:
        data = json.dumps(given, allow_nan=False).encode()
        found = parse_record(data, "its record", salvage=True).record
        check_id(found.trial_id, "trial_id")
    except (RecordError, ValueError, UnicodeError) as error:
        sample.notes.append(f"the record in its metadata is not used: {error}")
        return None
    return found


def _find_reason(trial: _Trial) -> str | None:
    if trial.reward.value is not None:
        return None
    own = trial.sample.own.get("reason_code")
    return own if isinstance(own, str) and is_known(own) else str(trial.reward.code)


def _find_basis(sample: Sample) -> str | None:
    """The basis of the cost that `proctor export` noted; None if it is none that proctor knows."""
    own = sample.own.get("cost_basis")
    return own if isinstance(own, str) and own in COST_KINDS else None


def _make_record(trial: _Trial) -> tuple[TrialRecord, CostBasis]:
    source, sample, own = trial.source, trial.sample, trial.own
    when = own.timestamp if own else _find_time(trial)
    cost, basis = _make_cost(sample, when)
    given: Object = source.log.eval
    record = TrialRecord(
        trial_id=own.trial_id if own else _make_trial_id(trial),
        experiment_id=source.experiment,
        dataset_id=own.dataset_id if own else _find_dataset(given),
        timestamp=when,
        task=own.task if own else _make_task(trial),
        agent=own.agent if own else _make_agent(trial),
        environment=own.environment if own else _make_environment(trial),
        inputs=own.inputs if own else _make_inputs(trial),
        evaluation=_make_evaluation(trial),
        timing=own.timing if own else TimingRecord(total_seconds=sample.seconds()),
        cost=own.cost if own else cost,
        completeness="partial",
        # Last, because it contains the notes of all the steps before.
        outputs=_make_outputs(trial),
    )
    return record, basis


def _make_trial_id(trial: _Trial) -> str:
    sample = trial.sample
    return make_id(f"{sample.id}.epoch-{sample.epoch}.{trial.source.evaluation}")


def _find_time(trial: _Trial) -> datetime:
    when = trial.sample.times()[1]
    if when is not None:
        return when
    when = parse_time(trial.source.log.eval.get("created"))
    if when is None:
        raise InspectError("neither the sample nor the log says when it ran; expected a time")
    trial.notes.append("timestamp is that of the log: the sample has no time")
    return when


def _find_dataset(given: Object) -> str | None:
    """The task and its version; the samples of a task are the dataset that can be compared."""
    task, version = given.get("task"), given.get("task_version", 0)
    if not isinstance(version, str | int):
        version = shown(version)
    name = f"{whole_text(str(task))}@{whole_text(str(version))}"
    plain = name.isprintable() and ".." not in name and len(name) <= LONGEST_DATASET_ID
    return name if plain else f"{make_id(name)}@0"


def _make_task(trial: _Trial) -> TaskReference:
    revision = find_object(trial.source.log.eval.get("revision")).get("commit")
    return TaskReference(
        task_id=trial.sample.id, task_revision=whole_text(find_text(revision) or UNRESOLVED)
    )


def _make_agent(trial: _Trial) -> AgentReference:
    given, plan, notes = trial.source.log.eval, trial.source.log.plan, trial.notes
    steps = plan.get("steps")
    solvers = [
        name
        for step in (steps if isinstance(steps, list) else [])[:_MOST_STEPS]
        if (name := find_text(find_object(step).get("solver")))
    ]
    limits = find_object(given.get("config"))
    settings: Object = {
        "solver_args": given.get("solver_args"),
        "task_args": given.get("task_args"),
        "model_args": given.get("model_args"),
        "model_roles": given.get("model_roles"),
        "generate_config": given.get("model_generate_config"),
        "limits": {key: limits[key] for key in _LIMITS if limits.get(key) is not None},
    }
    kept = {name: keep_storable(value, name, notes) for name, value in settings.items() if value}
    version = find_text(find_object(given.get("packages")).get("inspect_ai"))
    return AgentReference(
        adapter=whole_text(find_text(given.get("solver"), " + ".join(solvers)) or UNRESOLVED),
        model=whole_text(find_text(given.get("model")) or UNRESOLVED),
        adapter_revision=None if version is None else f"inspect_ai {whole_text(version)}",
        configuration={name: value for name, value in kept.items() if value is not None},
    )


def _make_environment(trial: _Trial) -> EnvironmentSnapshot:
    given = trial.source.log.eval
    places = (trial.sample.value.get("sandbox"), given.get("sandbox"))
    kinds = [find_object(place).get("type") for place in places]
    versions = {
        whole_text(name): whole_text(version)
        for name, version in find_object(given.get("packages")).items()
        if isinstance(version, str)
    }
    return EnvironmentSnapshot(
        runtime_image=UNRESOLVED,
        compute_backend=whole_text(find_text(*kinds) or "none"),
        tool_versions=versions or None,
    )


def _make_inputs(trial: _Trial) -> InputRecord:
    given = trial.sample.value.get("input")
    said: dict[str, str] = {}
    if isinstance(given, str) and given.strip():
        said["user"] = whole_text(given)
    for entry in trial.entries:
        if entry.content and entry.content.strip():
            said.setdefault(entry.role, entry.content)
    texts = {role: text for role, text in said.items() if len(text) <= LONGEST_SAID}
    return InputRecord(instruction=texts.get("user", UNRESOLVED), system_prompt=texts.get("system"))


def _make_evaluation(trial: _Trial) -> EvaluationResult:
    sample, reward, own = trial.sample, trial.reward, trial.own
    if own is not None and own.evaluation.reward == reward.value:
        return own.evaluation
    is_scored = reward.value is not None
    limit = sample.limit
    errors = [sample.error, reward.why, None if limit is None else f"ended by a {limit[0]} limit"]
    tags: tuple[ErrorTag, ...] = ()
    if sample.error is not None:
        code = str(ReasonCode.HARBOR_TRIAL_FAILED)
        tags = (ErrorTag(category=code, description=sample.error, source="mechanical"),)
    return EvaluationResult(
        reward=reward.value,
        validity=ValidityCheck(
            output_parseable=is_scored,
            schema_valid=is_scored,
            verifier_completed=is_scored,
            errors=tuple(error for error in errors if error is not None),
        ),
        breakdown=sample.breakdown,
        error_taxonomy=tags or None,
    )


def _make_outputs(trial: _Trial) -> OutputRecord:
    sample, given, notes = trial.sample, trial.source.log.eval, trial.notes
    limit = sample.limit
    failed, partial_ = sample.error is not None, limit is not None
    retries = sample.value.get("error_retries")
    usage = find_object(sample.value.get("model_usage"))
    said: Object = {
        "source": "inspect-eval-log",
        "eval_id": trial.source.evaluation,
        "run_id": given.get("run_id"),
        "sample_id": sample.value.get("id"),
        "epoch": sample.epoch,
        "sample_uuid": sample.value.get("uuid"),
        "scorer": trial.reward.scorer,
        "limit": None if limit is None else {"type": limit[0], "limit": limit[1]},
        "retries": len(retries) if isinstance(retries, list) else None,
        "invalidation": sample.value.get("invalidation"),
        "working_seconds": find_number(sample.value.get("working_time")),
        "model_usage": usage or None,
    }
    kept = {name: keep_storable(value, name, notes) for name, value in said.items()}
    return OutputRecord(
        agent_output=AgentOutput(
            status="failed" if failed else "partial" if partial_ else "completed",
            output_path=ANSWER,
            output_format="markdown",
            error_message=sample.error,
        ),
        raw_output_path=None if trial.answer is None else ANSWER,
        trajectory_path=TRAJECTORY if trial.entries else None,
        agent_result={
            **{name: value for name, value in kept.items() if value is not None},
            "notes": list(map(whole_text, notes)),
        },
    )


def _make_cost(sample: Sample, when: datetime) -> tuple[CostRecord | None, CostBasis]:
    """Tokens and cost of all models that the sample used, those that scored it included."""
    used = list(sample.usages())
    try:
        usage = sum_usage([tokens or Usage() for _, _, tokens in used])
        spendings = [Spending(usages=(tokens or Usage(),), model=name) for name, _, tokens in used]
        amounts = [find_number(given.get("total_cost")) for _, given, _ in used]
        known = [amount for amount in amounts if amount is not None]
        reported = math.fsum(known) if known and len(known) == len(amounts) else None
        basis = find_cost(spendings, when, reported_usd=reported)
    except (RecordError, OverflowError) as error:
        sample.notes.append(f"the sample's figures cannot be: {error}; cost is null")
        return None, unknown_cost(str(error))
    sample.notes.extend(f"cost: {note}" for note in basis.notes)
    if usage == Usage() and basis.amount_usd is None:
        return None, basis
    return make_cost(usage, basis), basis
