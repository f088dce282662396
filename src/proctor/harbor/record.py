"""Builds the records of harbor trials, run here or imported.

The runner and the importers pass a RecordSource: references they made themselves (task, agent,
environment, inputs) and how the trial ended. Outputs, evaluation, timing, cost and completeness are
derived here, in one way for all. Does not read files. Texts that go into a record stay as they are,
so that importing a trial again gives the same bytes.
"""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

import msgspec
from pydantic import ValidationError

from proctor.errors import RecordError
from proctor.harbor.documents import (
    AgentReport,
    ExceptionDocument,
    TrialDetails,
    TrialDocument,
)
from proctor.harbor.trial_cost import Reported, TraceUse, make_trial_cost
from proctor.harbor.trial_result import AgentContext, ExceptionInfo, TrialResult
from proctor.record.cost import CostBasis, unknown_cost
from proctor.record.document import render_refusal
from proctor.record.fields import Object, check_json
from proctor.record.ids import make_id
from proctor.record.model import (
    AdaptationProvenance,
    AgentOutput,
    AgentReference,
    EnvironmentSnapshot,
    ErrorTag,
    EvaluationResult,
    FileReference,
    InputRecord,
    OutputRecord,
    TaskReference,
    TimingRecord,
    TrialRecord,
    ValidityCheck,
)
from proctor.record.reasons import reason_for_exception
from proctor.record.rules import check_record
from proctor.reward.number import Number, Rewards, find_primary
from proctor.task.directory import Task
from proctor.task.manifest import FileDigest, find_role
from proctor.traces.entry import TraceKind
from proctor.traces.trace import Trace

type Status = Literal["completed", "partial", "failed"]

NO_MODEL: Final = "none"
"""Model of agents that use none, such as the oracle."""
UNRESOLVED: Final = "unresolved"
"""Placeholder for required values that are unknown."""
KILLED: Final = "the trial was killed before it wrote a result"
DID_NOT_END: Final = "the trial did not end"
"""Begins the reason in the record of a trial that is still in a phase."""

BUILT_FROM: Final = "harbor-dockerfile:"
"""Prefix of the path and digest of the Dockerfile, if harbor built the image itself."""
NOT_CONFIGURATION: Final = frozenset({"task", "trial_name", "trials_dir", "job_id"})
"""Keys of a trial's config that say where and under which name it ran, not how."""

_DOCKERFILE: Final = "environment/Dockerfile"
_CUT_SHORT: Final = frozenset({"AgentTimeoutError", "CancelledError"})
_LONGEST_MESSAGE: Final = 2000


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial ended, as in its result.json."""

    rewards: Rewards | None
    """None: not scored."""
    error: ExceptionDocument | None = None
    step_errors: tuple[ExceptionDocument, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why it is not scored, used if there is no exception."""
    was_verified: bool = False
    report: AgentReport | None = None
    """The agent's report about the whole trial."""
    steps: tuple[tuple[str, AgentReport | None], ...] = ()
    """The agent's report about each step, by step name."""

    @property
    def errors(self) -> tuple[ExceptionDocument, ...]:
        """The exceptions of the trial and its steps."""
        return (self.error, *self.step_errors) if self.error else self.step_errors

    @property
    def reported(self) -> Reported:
        """The agent's reports, for the cost."""
        if self.report is not None:  # covers all steps
            return Reported((self.report,))
        if not any(report for _, report in self.steps):
            return Reported(())
        silent = [name for name, report in self.steps if report is None]
        reports = tuple(report or AgentReport() for _, report in self.steps)
        return Reported(reports, silent[0] if silent else None)


def make_ending(
    result: TrialResult | TrialDocument,
    details: TrialResult | TrialDetails,
    *,
    rewards: Rewards | None,
    reasons: tuple[str, ...],
) -> Ending:
    """How a trial ended by its result.json, of which the caller decides what rewards count."""
    return Ending(
        rewards=rewards,
        error=_copy_error(result.exception_info) if result.exception_info else None,
        step_errors=tuple(
            _copy_error(step.exception_info)
            for step in result.step_results or ()
            if step.exception_info
        ),
        reasons=reasons,
        was_verified=result.verifier is not None,
        report=_copy_report(details.agent_result),
        steps=tuple(
            (step.step_name, _copy_report(step.agent_result)) for step in details.step_results or ()
        ),
    )


def _copy_error(error: ExceptionInfo | ExceptionDocument) -> ExceptionDocument:
    return ExceptionDocument(error.exception_type, error.exception_message)


def _copy_report(report: AgentContext | AgentReport | None) -> AgentReport | None:
    if report is None or isinstance(report, AgentReport):
        return report
    return AgentReport(
        n_input_tokens=report.n_input_tokens,
        n_cache_tokens=report.n_cache_tokens,
        n_output_tokens=report.n_output_tokens,
        cost_usd=report.cost_usd,
        metadata=report.metadata,
    )


class RecordSource(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the record of one trial is made from."""

    name: str
    """The trial's name, from which its id is made."""
    experiment: str
    dataset_id: str | None = None
    adaptation: AdaptationProvenance | None = None
    when: datetime
    task: TaskReference
    agent: AgentReference
    environment: EnvironmentSnapshot
    inputs: InputRecord
    timing: TimingRecord
    directory: str
    """The trial's directory, which paths in the record are relative to."""
    trace: Trace | None = None
    has_artifacts: bool = False
    raw_output: str | None = None
    """The file with what the agent printed, relative to the directory."""
    conversation: str | None = None
    """A conversation beside the trace, relative to the directory."""
    counted: TraceUse | None = None
    """Tokens and models of the traces, for what the agent does not report. Not for imports: a trial
    that is imported again must give the same bytes."""
    ending: Ending | None = None
    """None: it was killed before it wrote a result, or is still running."""
    phase: str | None = None
    """The current phase of a running trial."""


def build_record(source: RecordSource) -> tuple[TrialRecord, CostBasis]:
    """Build the record of a trial, still partial, and the basis of its cost.

    Raises:
        RecordError: the values do not make a valid record.
    """
    cost, basis = None, unknown_cost("the trial has not ended")
    if source.phase is None:
        reported = source.ending.reported if source.ending else Reported(())
        cost, basis = make_trial_cost(
            reported,
            source.trace,
            None if source.agent.model == NO_MODEL else source.agent.model,
            source.when,
            counted=source.counted,
        )
    try:
        record = TrialRecord(
            trial_id=make_id(source.name),
            experiment_id=source.experiment,
            dataset_id=source.dataset_id,
            timestamp=source.when,
            task=source.task,
            agent=source.agent,
            environment=source.environment,
            inputs=source.inputs,
            outputs=_make_outputs(source),
            evaluation=_evaluate(source),
            timing=source.timing,
            cost=cost,
            adaptation=source.adaptation,
            completeness="partial",
        )
    except ValidationError as error:
        raise RecordError(f"{source.directory}: {render_refusal(error)}") from None
    return record, basis


def complete_record(record: TrialRecord, *, is_complete: bool) -> TrialRecord:
    """Mark a new record complete if it is, and check it."""
    if is_complete:
        record = record.model_copy(update={"completeness": "complete"})
    check_record(record)
    return record


# Shared by the runner and the importers


class NamedModel(Protocol):
    """A model as an agent reported it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def provider(self) -> Any:
        """Its provider, if the agent names one."""
        ...


def find_model(configured: str | None, reported: NamedModel | None) -> str | None:
    """The requested model with its provider: as configured, else as the agent reports it."""
    if configured or reported is None:
        return configured or None
    return f"{reported.provider}/{reported.name}" if reported.provider else reported.name


def find_image(task: Task, files: Iterable[FileDigest]) -> str:
    """The image that a task names, or the digest of the Dockerfile that it is built from."""
    if task.config.environment.docker_image:
        return task.config.environment.docker_image
    digest = next((file.sha256 for file in files if file.path == _DOCKERFILE), None)
    return f"{BUILT_FROM}{_DOCKERFILE}@sha256:{digest}" if digest else UNRESOLVED


def refer_files(files: Iterable[FileDigest] | None) -> tuple[FileReference, ...] | None:
    """The files of a task, with digest and role."""
    if files is None:
        return None
    return tuple(
        FileReference(path=file.path, hash=file.sha256, source=find_role(file.path))
        for file in files
    )


def join_instructions(task: Task) -> str:
    """The task's instruction, or those of all its steps."""
    text = "\n\n".join([step.instruction for step in task.steps] or [task.instruction])
    return text if text.strip() else UNRESOLVED


def find_said(trace: Trace | None, role: str) -> str | None:
    """The first text of a role, system or user, in a trace."""
    if trace is None:
        return None
    said = [entry.content for entry in trace.entries if entry.role == role]
    said += [turn.text for turn in trace.turns if turn.role == role]
    return next((text for text in said if text and text.strip()), None)


# Outputs


def _make_outputs(source: RecordSource) -> OutputRecord:
    """The agent's outputs, with paths relative to the trial."""
    if source.phase is not None:
        return OutputRecord()
    ending, trace = source.ending, source.trace
    status: Status = "failed"
    error: str | None = KILLED
    if ending is not None:
        status = find_status(ending.error, was_verified=ending.was_verified)
        failed = ending.error if status != "completed" else None
        error = render_error(failed) if failed else None
    path = trace.path.removeprefix(f"{source.directory}/") if trace else None
    is_conversation = trace is not None and trace.kind is TraceKind.CONVERSATION
    return OutputRecord(
        agent_output=AgentOutput(
            status=status,
            output_path="artifacts" if source.has_artifacts else "agent",
            output_format="directory",
            error_message=error,
        ),
        raw_output_path=source.raw_output,
        conversation_path=path if is_conversation else source.conversation,
        trajectory_path=None if is_conversation else path,
        agent_result=_render_report(ending.report) if ending and ending.report else None,
    )


def _render_report(report: AgentReport) -> Object:
    written: Object = msgspec.to_builtins(report)
    try:
        check_json(written)
    except ValueError:
        # An agent must not be able to keep its trial out of the ledger through its own metadata.
        return written | {"metadata": None}
    return written


def find_status(error: ExceptionDocument | None, *, was_verified: bool) -> Status:
    """How the agent's own work ended, from the trial's exception."""
    if error is None or (
        was_verified and error.exception_type not in (*_CUT_SHORT, "NonZeroAgentExitCodeError")
    ):
        return "completed"
    return "partial" if error.exception_type in _CUT_SHORT else "failed"


def render_error(error: ExceptionDocument) -> str:
    """Format an exception on one line, shortened."""
    text = f"{error.exception_type}: {error.exception_message}".rstrip(": ")
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


# Evaluation


def _evaluate(source: RecordSource) -> EvaluationResult:
    if source.phase is not None:
        reason = f"{DID_NOT_END}: it was in its {source.phase} phase"
        return make_evaluation(None, (), [reason])
    ending = source.ending
    if ending is None:
        return make_evaluation(None, (), [KILLED])
    reasons = () if ending.errors else ending.reasons
    return make_evaluation(ending.rewards, ending.errors, reasons)


def make_evaluation(
    rewards: Rewards | None,
    exceptions: Sequence[ExceptionDocument],
    further: Sequence[str],
) -> EvaluationResult:
    """The evaluation of a trial: its reward, null if not scored, and its errors."""
    return EvaluationResult(
        reward=find_reward(rewards),
        validity=ValidityCheck(
            output_parseable=rewards is not None,
            schema_valid=rewards is not None,
            verifier_completed=rewards is not None,
            errors=(*map(render_error, exceptions), *further),
        ),
        breakdown=_render_rewards(rewards),
        error_taxonomy=tuple(map(_tag, exceptions)) or None,
    )


def _tag(error: ExceptionDocument) -> ErrorTag:
    code = reason_for_exception(error.exception_type)
    return ErrorTag(
        category=str(code or error.exception_type or "unknown"),
        description=render_error(error),
        source="mechanical",
    )


def find_reward(rewards: Rewards | None) -> float | None:
    """The reward called `reward`, or the only one; None if there is no such reward."""
    if not rewards:
        return None
    reward = find_primary(rewards)
    return None if reward is None or not can_store(reward) else float(reward)


def _render_rewards(rewards: Rewards | None) -> Object | None:
    if rewards is None:
        return None
    # A record cannot store nan and infinity; their names are stored instead.
    return {key: value if can_store(value) else repr(value) for key, value in rewards.items()}


def can_store(value: Number) -> bool:
    """Whether a record can store it: finite, and not an int beyond the range of floats."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


# Timing


class Timed(Protocol):
    """A phase with a start and an end."""

    @property
    def started_at(self) -> datetime | None:
        """Start time."""

    @property
    def finished_at(self) -> datetime | None:
        """End time."""


def find_seconds(timed: Timed) -> float | None:
    """Duration in seconds; None if an end is missing or the clock was set back."""
    start, end = timed.started_at, timed.finished_at
    if start is None or end is None or (start.tzinfo is None) != (end.tzinfo is None):
        return None
    seconds = (end - start).total_seconds()
    return seconds if seconds >= 0 else None


def make_timing(trial: TrialResult | TrialDetails, total: float | None) -> TimingRecord:
    """Seconds per phase, summed over steps; the total is 0.0 if unknown."""
    steps = trial.step_results or ()
    return TimingRecord(
        total_seconds=total or 0.0,
        agent_seconds=_add_phases(
            [trial.agent_execution, *(step.agent_execution for step in steps)]
        ),
        setup_seconds=_add_phases([trial.environment_setup, trial.agent_setup]),
        verification_seconds=_add_phases([trial.verifier, *(step.verifier for step in steps)]),
    )


def _add_phases(phases: Iterable[Timed | None]) -> float | None:
    """The sum; None if a phase that started has no known end."""
    seconds = [find_seconds(phase) for phase in phases if phase is not None]
    known = [each for each in seconds if each is not None]
    # Times have microseconds; rounding removes the float noise of the sum.
    return round(math.fsum(known), 6) if known and len(known) == len(seconds) else None


def find_span(phases: Iterable[Timed | None]) -> float | None:
    """Seconds from the start of the first known phase to the end of the last."""
    known = [each for each in phases if each is not None and find_seconds(each) is not None]
    starts = [_in_utc(each.started_at) for each in known if each.started_at]
    ends = [_in_utc(each.finished_at) for each in known if each.finished_at]
    return (max(ends) - min(starts)).total_seconds() if starts and ends else None


def _in_utc(time: datetime) -> datetime:
    return time if time.tzinfo else time.replace(tzinfo=UTC)
