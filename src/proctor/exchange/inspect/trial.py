"""Make a sealable trial of a sample: a partial record, and its evidence.

    trajectory.jsonl      the messages, with times, tokens and models from the events
    output.md             the answer that was scored, if there is one
    inspect_sample.json   the sample as Inspect writes it, keys sorted
    inspect_eval.json     `version`, `eval` and `plan` of the log's header, keys sorted

Deterministic: the same log gives the same bytes. The file's name, the log's status and its results
are not part of a trial: they change while an evaluation runs, and a sample that is in a log is
finished. A missing score is null, never 0; what could not be used is listed in
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

import msgspec
from pydantic import ValidationError

from proctor.errors import InspectError, RecordError
from proctor.exchange.harbor_trial import LONGEST_SAID
from proctor.exchange.inspect.reading import InspectLog, LogReader, find_log_files, render_place
from proctor.exchange.inspect.sample import (
    EvalSpec,
    Reward,
    Sample,
    find_reward,
    keep_storable,
    read_entries,
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
    experiment: str
    header: bytes
    """inspect_eval.json."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A sample with values derived from it."""

    source: _Source
    sample: Sample
    entries: list[Entry]
    reward: Reward
    own: TrialRecord | None
    """The record that the sample was exported from, if proctor wrote the log."""
    notes: list[str]
    """What could not be used."""


def find_samples(paths: Iterable[Path], options: InspectOptions, reader: LogReader) -> FoundLogs:
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
            log = reader.load_log(file)
        except InspectError as error:
            if len(files) == 1:
                raise
            found.offers.append(Offer(shown_name(str(file)), partial(refuse, error)))
            continue
        header = log.header
        status = f"its status is {header.status}"
        status += f": {shown(header.error.message)}" if header.error else ""
        if not log.samples:
            found.notes.append(f"{log.path}: no samples in it; {status}")
        elif header.status != "success":
            found.notes.append(f"{log.path}: {status}; it may lack samples")
        said = {"version": header.version, "eval": log.written["eval"]}
        said["plan"] = log.written.get("plan", {})
        source = _Source(
            log=log,
            options=options,
            experiment=options.experiment
            or make_id(header.eval.own_experiment or header.eval.task),
            header=json.dumps(said, sort_keys=True, indent=2).encode() + b"\n",
        )
        found.offers += [
            Offer(render_place(log.path, key), partial(_submit_sample, reader, source, key))
            for key in log.samples
        ]
    if not found.offers:
        raise InspectError("; ".join(found.notes))
    return found


def _submit_sample(reader: LogReader, source: _Source, key: tuple[int | str, int]) -> Submission:
    """Make the trial of a sample."""
    where = render_place(source.log.path, key)
    sample, data = reader.load_sample(source.log.path, key)
    try:
        return _submit(source, sample, data, where)
    except (InspectError, RecordError, msgspec.ValidationError) as error:
        raise InspectError(f"{where}: {error}") from error
    except ValidationError as error:
        raise InspectError(f"{where}: a record cannot store it: {render_refusal(error)}") from error
    except RecursionError as error:
        raise InspectError(f"{where}: nested too deeply") from error


def _submit(source: _Source, sample: Sample, data: bytes, where: str) -> Submission:
    notes: list[str] = []
    trial = _Trial(
        source=source,
        sample=sample,
        entries=read_entries(sample, notes),
        reward=find_reward(sample, source.log.header.eval.default_scorer, source.options.scorer),
        own=_find_own_record(sample, notes),
        notes=notes,
    )
    record, basis = _make_record(trial)
    check_record(record)
    files = {SAMPLE: data, EVAL: source.header}
    if trial.entries:
        files[TRAJECTORY], _ = render_as_trajectory(Loaded(trial.entries, []))
    if sample.answer.strip():
        files[ANSWER] = sample.answer.encode()
    # What `proctor export` noted, as far as proctor knows it.
    noted_basis, reason = sample.own.get("cost_basis"), sample.own.get("reason_code")
    if not (isinstance(reason, str) and is_known(reason)):
        reason = str(trial.reward.code)
    return Submission(
        record=render_record(record),
        where=where,
        attached=files,
        cost_basis=noted_basis if noted_basis in COST_KINDS else basis.kind,
        reason_code=reason if trial.reward.value is None else None,
        slot=Slot(task=record.task.task_id, attempt=sample.epoch - 1),
        source=Source(kind="inspect", name=source.log.name),
    )


def _find_own_record(sample: Sample, notes: list[str]) -> TrialRecord | None:
    """The record that `proctor export` put into the sample."""
    given = sample.own.get("record")
    if given is None:
        return None
    try:
        data = json.dumps(given, allow_nan=False).encode()
        found = parse_record(data, "its record", salvage=True).record
        check_id(found.trial_id, "trial_id")
    except (RecordError, ValueError, UnicodeError) as error:
        notes.append(f"the record in its metadata is not used: {error}")
        return None
    return found


def _make_record(trial: _Trial) -> tuple[TrialRecord, CostBasis]:
    source, sample, own = trial.source, trial.sample, trial.own
    given = source.log.header.eval
    when = own.timestamp if own else sample.times()[1]
    if when is None:
        when = given.created
        trial.notes.append("timestamp is that of the log: the sample has no time")
    cost, basis = _make_cost(sample, when, trial.notes)
    record = TrialRecord(
        trial_id=own.trial_id
        if own
        else make_id(f"{sample.id}.epoch-{sample.epoch}.{given.eval_id}"),
        experiment_id=source.experiment,
        dataset_id=own.dataset_id if own else _find_dataset(given),
        timestamp=when,
        task=own.task
        if own
        else TaskReference(
            task_id=str(sample.id),
            task_revision=(given.revision and given.revision.commit) or UNRESOLVED,
        ),
        agent=own.agent if own else _make_agent(trial),
        environment=own.environment if own else _make_environment(trial),
        inputs=own.inputs if own else _make_inputs(trial),
        evaluation=_make_evaluation(trial),
        timing=own.timing if own else TimingRecord(total_seconds=sample.seconds(trial.notes)),
        cost=own.cost if own else cost,
        completeness="partial",
        # Last, because it contains the notes of all the steps before.
        outputs=_make_outputs(trial),
    )
    return record, basis


def _find_dataset(given: EvalSpec) -> str | None:
    """The task and its version; the samples of a task are the dataset that can be compared."""
    name = f"{given.task}@{given.task_version}"
    plain = name.isprintable() and ".." not in name and len(name) <= LONGEST_DATASET_ID
    return name if plain else f"{make_id(name)}@0"


def _make_agent(trial: _Trial) -> AgentReference:
    header = trial.source.log.header
    given = header.eval
    limits = {key: given.config[key] for key in _LIMITS if given.config.get(key) is not None}
    settings: Object = {
        "solver_args": given.solver_args,
        "task_args": given.task_args,
        "model_args": given.model_args,
        "model_roles": given.model_roles,
        "generate_config": given.model_generate_config,
        "limits": limits,
    }
    kept = {
        name: keep_storable(value, name, trial.notes) for name, value in settings.items() if value
    }
    solvers = " + ".join(step.solver for step in header.plan.steps[:_MOST_STEPS])
    version = given.packages.get("inspect_ai")
    return AgentReference(
        adapter=given.solver or solvers or UNRESOLVED,
        model=given.model or UNRESOLVED,
        adapter_revision=version and f"inspect_ai {version}",
        configuration={name: value for name, value in kept.items() if value is not None},
    )


def _make_environment(trial: _Trial) -> EnvironmentSnapshot:
    given = trial.source.log.header.eval
    sandbox = trial.sample.sandbox or given.sandbox
    return EnvironmentSnapshot(
        runtime_image=UNRESOLVED,
        compute_backend=sandbox.type if sandbox else "none",
        tool_versions=given.packages or None,
    )


def _make_inputs(trial: _Trial) -> InputRecord:
    given = trial.sample.input
    said: dict[str, str] = {}
    if isinstance(given, str) and given.strip():
        said["user"] = given
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
    limit = None if sample.limit is None else f"ended by a {sample.limit.type} limit"
    tags: tuple[ErrorTag, ...] = ()
    if sample.failure is not None:
        code = str(ReasonCode.HARBOR_TRIAL_FAILED)
        tags = (ErrorTag(category=code, description=sample.failure, source="mechanical"),)
    values = _name_odd_numbers(sample.values)
    return EvaluationResult(
        reward=reward.value,
        validity=ValidityCheck(
            output_parseable=is_scored,
            schema_valid=is_scored,
            verifier_completed=is_scored,
            errors=tuple(each for each in (sample.failure, reward.why, limit) if each is not None),
        ),
        breakdown=keep_storable(values, "scores", trial.notes) if values else None,
        error_taxonomy=tags or None,
    )


def _name_odd_numbers(value: Any) -> Any:
    """The value with NaN and infinite numbers as texts, which JSON has."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _name_odd_numbers(each) for key, each in value.items()}
    return [_name_odd_numbers(each) for each in value] if isinstance(value, list) else value


def _make_outputs(trial: _Trial) -> OutputRecord:
    sample, given = trial.sample, trial.source.log.header.eval
    said: Object = {
        "source": "inspect-eval-log",
        "eval_id": given.eval_id,
        "run_id": given.run_id or None,
        "sample_id": sample.id,
        "epoch": sample.epoch,
        "sample_uuid": sample.uuid,
        "scorer": trial.reward.scorer,
        "limit": sample.limit and msgspec.to_builtins(sample.limit),
        "retries": None if sample.error_retries is None else len(sample.error_retries),
        "invalidation": sample.invalidation,
        "working_seconds": sample.working_time,
        "model_usage": sample.model_usage or None,
    }
    kept = {name: keep_storable(value, name, trial.notes) for name, value in said.items()}
    return OutputRecord(
        agent_output=AgentOutput(
            status="failed" if sample.error else "partial" if sample.limit else "completed",
            output_path=ANSWER,
            output_format="markdown",
            error_message=sample.failure,
        ),
        raw_output_path=ANSWER if sample.answer.strip() else None,
        trajectory_path=TRAJECTORY if trial.entries else None,
        agent_result={
            **{name: value for name, value in kept.items() if value is not None},
            "notes": list(trial.notes),
        },
    )


def _make_cost(
    sample: Sample, when: datetime, notes: list[str]
) -> tuple[CostRecord | None, CostBasis]:
    """Tokens and cost of all models that the sample used, those that scored it included."""
    used = list(sample.usages(notes))
    try:
        usage = sum_usage([tokens or Usage() for _, _, tokens in used])
        spendings = [Spending(usages=(tokens or Usage(),), model=name) for name, _, tokens in used]
        known = [given.total_cost for _, given, _ in used if given.total_cost is not None]
        reported = math.fsum(known) if known and len(known) == len(used) else None
        basis = find_cost(spendings, when, reported_usd=reported)
    except (RecordError, OverflowError) as error:
        notes.append(f"the sample's figures cannot be: {error}; cost is null")
        return None, unknown_cost(str(error))
    notes.extend(f"cost: {note}" for note in basis.notes)
    if usage == Usage() and basis.amount_usd is None:
        return None, basis
    return make_cost(usage, basis), basis
