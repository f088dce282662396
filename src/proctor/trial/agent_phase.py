"""Set up the agent of a trial and run it within its time limit."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from proctor.errors import AgentSetupTimeoutError, AgentTimeoutError, TrialError
from proctor.harbor.trial_result import AgentContext, TimingInfo
from proctor.task.directory import Step
from proctor.trial.agent import Agent
from proctor.trial.environment import Environment, OutputLogging
from proctor.trial.finding import FindingCode
from proctor.trial.inside import acting_as
from proctor.trial.making import describe_agent
from proctor.trial.model_use import models_open
from proctor.trial.network import host_ports_open, model_port_open, network_of_phase
from proctor.trial.output_log import OutputLog
from proctor.trial.trial_run import Target, TrialRun

STILL_VERIFIED = frozenset(
    {"AgentTimeoutError", "NonZeroAgentExitCodeError", "ModelLimitError", "ModelReplayError"}
)
"""Exceptions after which a trial is still verified. By name, because an agent written for harbor
raises harbor's own class.
"""
# harbor's agents that run on the host and write their own trace: what they let a terminal print is
# the same screen again and again.
_TRACED_BY_HARBOR = "harbor.agents.terminus"


async def set_up_agent(run: TrialRun, agent: Agent, environment: Environment) -> None:
    """Let the agent install what it needs.

    Raises:
        AgentSetupTimeoutError: it timed out.
        Exception: raised by the agent.
    """
    timeout = run.timeouts.agent_setup
    timing = run.result.agent_setup = TimingInfo()
    with acting_as(environment, run.spec.task.config.agent.user), run.timed(timing):
        try:
            async with host_ports_open(environment):
                await asyncio.wait_for(agent.setup(environment=environment), timeout)
        except TimeoutError as error:
            message = f"Agent setup timed out after {timeout} seconds"
            raise AgentSetupTimeoutError(message) from error
    run.result.agent_info = describe_agent(agent, run.spec.config.agent.model_name)


async def run_agent(
    run: TrialRun, agent: Agent, environment: Environment, target: Target, step: Step | None = None
) -> None:
    """Run the agent on the task, or on one step of it.

    Raises:
        AgentTimeoutError: it timed out; its processes inside are dead.
        Exception: raised by the agent.
    """
    task = run.spec.task
    timeout = (run.step_timeouts(step) if step else run.timeouts).agent
    instruction = step.instruction if step else task.instruction
    network = run.network(step)
    context = target.agent_result = AgentContext()
    timing = target.agent_execution = TimingInfo()
    run.has_logs = False
    with (
        acting_as(environment, find_agent_user(run, step)),
        run.timed(timing),
        _output_logged(run, agent, environment),
    ):
        try:
            async with (
                host_ports_open(environment),
                model_port_open(environment),
                network_of_phase(environment, network.baseline, network.agent),
                models_open(run.models),
            ):
                running = agent.run(
                    instruction=instruction, environment=environment, context=context
                )
                await asyncio.wait_for(running, timeout)
        except TimeoutError as error:
            message = f"Agent execution timed out after {timeout} seconds"
            raise AgentTimeoutError(message) from error
        except SystemExit as error:
            # SystemExit would end the runner, and every other trial with it.
            raise TrialError(f"the agent called for the program's exit ({error.code!r})") from error


@contextmanager
def _output_logged(run: TrialRun, agent: Agent, environment: Environment) -> Iterator[None]:
    """Record what commands print inside the context, unless the agent writes its own trace."""
    has_trace = type(agent).__module__.startswith(_TRACED_BY_HARBOR) or getattr(
        agent, "writes_trace", False
    )
    if has_trace or not isinstance(environment, OutputLogging):
        yield
        return
    log = OutputLog(str(run.paths.agent_dir), run.redactor, run.logger, run.clock)
    environment.output_log = log
    try:
        yield
    finally:
        environment.output_log = None
        log.close()
        if log.n_cut:
            run.add_finding(
                FindingCode.OUTPUT_CUT,
                f"the agent printed more than is kept: {log.n_cut:,} bytes were cut",
                file=log.path.removeprefix(f"{run.place}/"),
                bytes_cut=log.n_cut,
            )


def find_agent_user(run: TrialRun, step: Step | None) -> str | int | None:
    """User of the agent: the step's, else the task's; None for the environment's default."""
    own = step.config.agent.user if step else None
    return run.spec.task.config.agent.user if own is None else own
