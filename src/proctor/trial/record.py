"""A trial as a TrialRecord, part by part: pure functions of its plan, its result and what it left.

The same fields are made of a finished trial by `proctor record make`; where both know a thing,
both say the same.
"""

import math
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from proctor import __version__
from proctor.harbor.account import AgentResultAccount
from proctor.harbor.documents import ExceptionDocument
from proctor.harbor.evaluation import find_status, make_evaluation, render_error
from proctor.harbor.spending import NO_MODEL, Reported, has_spending, make_trial_cost
from proctor.harbor.trial_result import (
    AgentContext,
    ExceptionInfo,
    TimingInfo,
    TrialResult,
)
from proctor.record.cost import CostRecord
from proctor.record.fields import Object, check_json
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
    ValidityCheck,
)
from proctor.task.config import TaskConfig
from proctor.task.manifest import FileDigest, find_role
from proctor.traces.entry import TraceKind
from proctor.traces.trace import Trace
from proctor.trial.environment import Watched
from proctor.trial.plan import Plan
from proctor.trial.timeouts import find_timeouts

UNRESOLVED: Final = "unresolved"
"""For what a record must say and nobody knows."""
_DOCKERFILE: Final = "environment/Dockerfile"
_NOT_CONFIGURATION: Final = frozenset({"task", "trial_name", "trials_dir", "job_id"})
"""What says where and as what a trial ran, not how."""
_NO_VERSION: Final = frozenset({"", "unknown"})


def make_task(plan: Plan) -> TaskReference:
    """Which task, and harbor's checksum of it."""
    return TaskReference(task_id=plan.task.name, task_revision=plan.digests.task_checksum)


class KnownAgent(NamedTuple):
    """What may become known of the agent while its trial runs."""

    adapter: str
    model: str
    adapter_revision: str | None


def make_agent(plan: Plan, known: KnownAgent) -> AgentReference:
    """Who sits the task: the harness, the model it was told to use, and how both were set up."""
    configuration = plan.shared.once("configuration", lambda: make_configuration(plan))
    return AgentReference(**known._asdict(), configuration=configuration)


def describe_agent(plan: Plan, result: TrialResult, answered: str | None = None) -> KnownAgent:
    """The agent as it is known by now; `answered`: the model that did."""
    info, wished = result.agent_info, plan.record.adapter_revision
    version = None if info.version.strip() in _NO_VERSION else info.version
    return KnownAgent(
        adapter=info.name if info.name.strip() else UNRESOLVED,
        model=answered or find_model_requested(plan, result) or NO_MODEL,
        adapter_revision=_join_revision(wished or version, plan.record.adapter_carrier),
    )


def _join_revision(own: str | None, carrier: str | None) -> str | None:
    """Both are needed: the package that drives an agent does not say which agent it found."""
    return f"{own} {carrier}" if own and carrier else own


def find_model_requested(plan: Plan, result: TrialResult) -> str | None:
    """The model that the agent was told to use, with its provider."""
    if plan.config.agent.model_name:
        return plan.config.agent.model_name
    model = result.agent_info.model_info
    if model is None:
        return None
    return f"{model.provider}/{model.name}" if model.provider else model.name


def make_configuration(plan: Plan) -> dict[str, Any]:
    """What was asked for, and the limits that followed from job and task."""
    written = plan.config.model_dump(mode="json")
    asked = {key: told for key, told in written.items() if key not in _NOT_CONFIGURATION}
    return asked | {"limits": _find_limits(plan, plan.task.config)}


def _find_limits(plan: Plan, task: TaskConfig) -> dict[str, Any]:
    """Seconds, processors and megabytes that the trial is given; null is no limit."""
    timeouts = find_timeouts(plan.config, task)
    told, own = plan.config.environment, task.environment
    return {
        "agent_sec": timeouts.agent,
        "agent_setup_sec": timeouts.agent_setup,
        "verifier_sec": timeouts.verifier,
        "environment_build_sec": timeouts.environment,
        "cpus": told.override_cpus or own.cpus,
        "memory_mb": told.override_memory_mb or own.memory_mb,
        "storage_mb": told.override_storage_mb or own.storage_mb,
        "gpus": told.override_gpus or own.gpus,
    }


def make_environment(plan: Plan, watched: Watched | None) -> EnvironmentSnapshot:
    """Where it runs: what the environment itself says, else as much as job and task say."""
    if watched is not None:
        snapshot = watched.snapshot
        return EnvironmentSnapshot(
            runtime_image=snapshot.runtime_image,
            compute_backend=snapshot.compute_backend,
            tool_versions={"proctor": __version__, **snapshot.tool_versions},
        )
    told = plan.config.environment
    return EnvironmentSnapshot(
        runtime_image=_find_image(plan),
        compute_backend=told.import_path or told.type or "docker",
        tool_versions={"proctor": __version__},
    )


def _find_image(plan: Plan) -> str:
    named = plan.task.config.environment.docker_image
    if named:
        return named
    files = plan.digests.followed or plan.digests.files
    digest = next((file.sha256 for file in files if file.path == _DOCKERFILE), None)
    return f"harbor-dockerfile:{_DOCKERFILE}@sha256:{digest}" if digest else UNRESOLVED


def make_inputs(plan: Plan, trace: Trace | None = None) -> InputRecord:
    """What the agent is given: every file of the task, each with its digest."""
    task = plan.task
    text = "\n\n".join([step.instruction for step in task.steps] or [task.instruction])
    system = find_system_prompt(plan, trace)
    return InputRecord(
        instruction=text if text.strip() else UNRESOLVED,
        system_prompt=system,
        input_files=_refer_files(plan.digests.followed),
    )


def find_system_prompt(plan: Plan, trace: Trace | None) -> str | None:
    """The system prompt that the agent was to use, else the one that its trace shows."""
    return plan.record.system_prompt or (_find_system(trace) if trace else None)


@lru_cache(maxsize=64)
def _refer_files(files: tuple[FileDigest, ...] | None) -> tuple[FileReference, ...] | None:
    # Many attempts at one task name the same files; they are made once.
    if files is None:
        return None
    return tuple(
        FileReference(path=file.path, hash=file.sha256, source=find_role(file.path))
        for file in files
    )


def _find_system(trace: Trace) -> str | None:
    said = [entry.content for entry in trace.entries if entry.role == "system"]
    said += [turn.text for turn in trace.turns if turn.role == "system"]
    return next((text for text in said if text and text.strip()), None)


@lru_cache(maxsize=64)
def make_unfinished_evaluation(phase: str) -> EvaluationResult:
    """No score yet, and where the trial is: what a killed runner leaves."""
    errors = (f"the trial did not end: it was in its {phase} phase",)
    validity = ValidityCheck(
        output_parseable=False, schema_valid=False, verifier_completed=False, errors=errors
    )
    return EvaluationResult(reward=None, validity=validity)


def make_final_evaluation(result: TrialResult) -> EvaluationResult:
    """What the trial scored, and what went wrong."""
    verified = result.verifier_result
    rewards = verified.rewards if verified else None
    exceptions = _find_exceptions(result)
    further = []
    if verified is not None and rewards is None and not exceptions:
        further.append("reward.json: null; the verifier declined to score")
    return make_evaluation(rewards, exceptions, further, [])


def _find_exceptions(result: TrialResult) -> list[ExceptionDocument]:
    steps = [step.exception_info for step in result.step_results or ()]
    return [_document(error) for error in (result.exception_info, *steps) if error is not None]


def _document(error: ExceptionInfo) -> ExceptionDocument:
    return ExceptionDocument(error.exception_type, error.exception_message)


def make_outputs(
    result: TrialResult, trace: Trace | None, place: str, *, has_artifacts: bool
) -> OutputRecord:
    """What the agent left, with paths relative to the trial's directory, which is `place`."""
    error = _document(result.exception_info) if result.exception_info else None
    status = find_status(error, was_verified=result.verifier is not None)
    path = trace.path.removeprefix(f"{place}/") if trace else None
    spoken = trace is not None and trace.kind is TraceKind.CONVERSATION
    output = AgentOutput(
        status=status,
        output_path="artifacts" if has_artifacts else "agent",
        output_format="directory",
        error_message=render_error(error) if error and status != "completed" else None,
    )
    return OutputRecord(
        agent_output=output,
        conversation_path=path if spoken else None,
        trajectory_path=None if spoken else path,
        agent_result=_find_said(result.agent_result),
    )


def _find_said(context: AgentContext | None) -> Object | None:
    if context is None:
        return None
    said: Object = msgspec.to_builtins(_account(context))
    try:
        check_json(said)
    except ValueError:
        # An agent may say of itself what no record can hold.
        return said | {"metadata": None}
    return said


def _account(context: AgentContext) -> AgentResultAccount:
    return AgentResultAccount(
        n_input_tokens=context.n_input_tokens,
        n_cache_tokens=context.n_cache_tokens,
        n_output_tokens=context.n_output_tokens,
        cost_usd=context.cost_usd,
        metadata=context.metadata,
    )


def make_timing(result: TrialResult) -> TimingRecord:
    """How long the trial took, and its phases."""
    return TimingRecord(**find_times(result))


class Times(TypedDict):
    """The fields of a TimingRecord."""

    total_seconds: float
    agent_seconds: float | None
    setup_seconds: float | None
    verification_seconds: float | None


def find_times(result: TrialResult) -> Times:
    """Seconds per phase, those of several steps added up; what has no end yet is left out."""
    steps = result.step_results or ()
    return {
        "total_seconds": find_seconds(result.started_at, result.finished_at) or 0.0,
        "agent_seconds": _add(result.agent_execution, *[step.agent_execution for step in steps]),
        "setup_seconds": _add(result.environment_setup, result.agent_setup),
        "verification_seconds": _add(result.verifier, *[step.verifier for step in steps]),
    }


def find_seconds(started_at: datetime | None, finished_at: datetime | None) -> float | None:
    """How long something took; None where it has not ended or the clock was turned back."""
    if started_at is None or finished_at is None:
        return None
    # Both are of one clock.
    seconds = (finished_at - started_at).total_seconds()
    return seconds if seconds >= 0 else None


def _add(*phases: TimingInfo | None) -> float | None:
    known = []
    for phase in phases:
        if phase is not None:
            seconds = find_seconds(phase.started_at, phase.finished_at)
            if seconds is None:
                return None
            known.append(seconds)
    # Clocks tell microseconds; a sum of them tells no more.
    return round(math.fsum(known), 6) if known else None


def make_cost(result: TrialResult, trace: Trace | None, model: str) -> CostRecord | None:
    """Tokens and money; null where nothing is known."""
    reported = _find_reported(result)
    when = result.finished_at or result.started_at
    if when is None or not has_spending(reported, trace):
        return None
    cost, _ = make_trial_cost(reported, trace, model, when, [])
    return cost


def _find_reported(result: TrialResult) -> Reported:
    if result.agent_result is not None:
        return Reported((_account(result.agent_result),))
    steps = result.step_results or []
    if not any(step.agent_result for step in steps):
        return Reported(())
    silent = [step.step_name for step in steps if step.agent_result is None]
    told = [_account(step.agent_result or AgentContext()) for step in steps]
    return Reported(tuple(told), silent[0] if silent else None)
