"""Build the parts of a trial's record that the runner knows, from its spec and its result.

`proctor.harbor.record` builds the record itself, as for imported trials.
"""

from collections.abc import Sequence
from typing import Any, Final

from proctor import __version__
from proctor.harbor.documents import ExceptionDocument
from proctor.harbor.record import (
    NO_MODEL,
    NOT_CONFIGURATION,
    UNRESOLVED,
    Ending,
    find_image,
    find_said,
    find_seconds,
    join_instructions,
    make_timing,
    refer_files,
)
from proctor.harbor.trial_cost import AgentReport
from proctor.harbor.trial_result import AgentContext, ExceptionInfo, TrialResult
from proctor.record.model import (
    AgentReference,
    EnvironmentSnapshot,
    InputRecord,
    TaskReference,
    TimingRecord,
)
from proctor.traces.trace import Trace
from proctor.trial.environment import Snapshot
from proctor.trial.spec import TrialSpec
from proctor.trial.timeouts import find_limits

_NO_VERSION: Final = frozenset({"", "unknown"})


def make_task(spec: TrialSpec) -> TaskReference:
    """The task and harbor's checksum of it."""
    return TaskReference(task_id=spec.task.name, task_revision=spec.digests.task_checksum)


def make_agent(spec: TrialSpec, result: TrialResult, models: Sequence[str] = ()) -> AgentReference:
    """The agent, the model that answered or was requested, and their configuration."""
    info, pinned = result.agent_info, spec.record.adapter_revision
    version = None if info.version.strip() in _NO_VERSION else info.version
    answered = models[0] if len(models) == 1 else None
    return AgentReference(
        adapter=info.name if info.name.strip() else UNRESOLVED,
        model=answered or find_model_requested(spec, result) or NO_MODEL,
        adapter_revision=_join_revision(
            pinned or version or spec.record.command_pin, spec.record.adapter_carrier
        ),
        configuration=make_configuration(spec),
    )


def _join_revision(own: str | None, carrier: str | None) -> str | None:
    """Join both revisions: the package that drives an agent does not identify the agent."""
    return f"{own} {carrier}" if own and carrier else own


def find_model_requested(spec: TrialSpec, result: TrialResult) -> str | None:
    """The requested model, with its provider."""
    if spec.config.agent.model_name:
        return spec.config.agent.model_name
    model = result.agent_info.model_info
    if model is None:
        return None
    return f"{model.provider}/{model.name}" if model.provider else model.name


def make_configuration(spec: TrialSpec) -> dict[str, Any]:
    """The requested configuration, and the limits derived from job and task."""
    written = spec.config.model_dump(mode="json")
    asked = {key: value for key, value in written.items() if key not in NOT_CONFIGURATION}
    return asked | {"limits": find_limits(spec.config, spec.task.config)}


def make_environment(spec: TrialSpec, snapshot: Snapshot | None) -> EnvironmentSnapshot:
    """Where it runs: as the environment reports it, else as job and task describe it."""
    if snapshot is not None:
        return EnvironmentSnapshot(
            runtime_image=snapshot.runtime_image,
            compute_backend=snapshot.compute_backend,
            tool_versions={**_find_tools(spec), **snapshot.tool_versions},
        )
    asked = spec.config.environment
    return EnvironmentSnapshot(
        runtime_image=find_image(spec.task, spec.digests.followed or spec.digests.files),
        compute_backend=asked.import_path or asked.type or "docker",
        tool_versions=_find_tools(spec),
    )


def _find_tools(spec: TrialSpec) -> dict[str, str]:
    """This program, and the node of a cluster that it ran on."""
    node = {"node": spec.record.node} if spec.record.node is not None else {}
    return {"proctor": __version__, **node}


def make_inputs(spec: TrialSpec, trace: Trace | None) -> InputRecord:
    """What the agent is given: every file of the task, with its digest."""
    return InputRecord(
        instruction=join_instructions(spec.task),
        system_prompt=spec.record.system_prompt or find_said(trace, "system"),
        input_files=refer_files(spec.digests.followed),
    )


def make_ending(result: TrialResult) -> Ending:
    """How the trial ended."""
    verified = result.verifier_result
    steps = result.step_results or ()
    declined = verified is not None and verified.rewards is None
    return Ending(
        rewards=verified.rewards if verified else None,
        error=_copy_error(result.exception_info) if result.exception_info else None,
        step_errors=tuple(
            _copy_error(step.exception_info) for step in steps if step.exception_info
        ),
        reasons=("reward.json: null; the verifier declined to score",) if declined else (),
        was_verified=result.verifier is not None,
        report=_copy_report(result.agent_result) if result.agent_result else None,
        steps=tuple(
            (step.step_name, _copy_report(step.agent_result) if step.agent_result else None)
            for step in steps
        ),
    )


def _copy_error(error: ExceptionInfo) -> ExceptionDocument:
    return ExceptionDocument(error.exception_type, error.exception_message)


def _copy_report(context: AgentContext) -> AgentReport:
    return AgentReport(
        n_input_tokens=context.n_input_tokens,
        n_cache_tokens=context.n_cache_tokens,
        n_output_tokens=context.n_output_tokens,
        cost_usd=context.cost_usd,
        metadata=context.metadata,
    )


def make_run_timing(result: TrialResult) -> TimingRecord:
    """How long the trial and its phases took; unfinished phases are omitted."""
    steps = result.step_results or ()
    return make_timing(
        find_seconds(result),
        agent=[result.agent_execution, *(step.agent_execution for step in steps)],
        setup=[result.environment_setup, result.agent_setup],
        verification=[result.verifier, *(step.verifier for step in steps)],
    )
