"""The agent's part of a trial: set up, then run for as long as it may."""

import asyncio

from proctor.errors import AgentSetupTimeoutError, AgentTimeoutError, TrialError
from proctor.harbor.trial_result import AgentContext, TimingInfo
from proctor.task.directory import Step
from proctor.trial.agent import Agent
from proctor.trial.environment import Environment
from proctor.trial.inside import acting_as
from proctor.trial.making import describe_agent
from proctor.trial.network_switch import host_ports_open, network_of_phase
from proctor.trial.sitting import Sitting, Target

STILL_VERIFIED = frozenset({"AgentTimeoutError", "NonZeroAgentExitCodeError"})
"""By name: an agent written for harbor raises harbor's own class."""


async def set_up_agent(sitting: Sitting, agent: Agent, environment: Environment) -> None:
    """Let the agent install what it needs.

    Raises:
        AgentSetupTimeoutError: it took too long.
        Exception: whatever else it raises.
    """
    timeout = sitting.timeouts.agent_setup
    timing = sitting.result.agent_setup = TimingInfo()
    with acting_as(environment, sitting.plan.task.config.agent.user), sitting.timed(timing):
        try:
            async with host_ports_open(environment):
                await asyncio.wait_for(agent.setup(environment=environment), timeout)
        except TimeoutError as error:
            message = f"Agent setup timed out after {timeout} seconds"
            raise AgentSetupTimeoutError(message) from error
    sitting.result.agent_info = describe_agent(agent, sitting.plan.config.agent.model_name)


async def run_agent(
    sitting: Sitting,
    agent: Agent,
    environment: Environment,
    target: Target,
    step: Step | None = None,
) -> None:
    """Let the agent do the task, or one step of it.

    Raises:
        AgentTimeoutError: it took too long; what it ran inside is dead.
        Exception: whatever else it raises.
    """
    task = sitting.plan.task
    timeout = (sitting.step_timeouts(step) if step else sitting.timeouts).agent
    instruction = step.instruction if step else task.instruction
    network = sitting.network(step)
    context = target.agent_result = AgentContext()
    timing = target.agent_execution = TimingInfo()
    sitting.has_logs = False
    with acting_as(environment, find_agent_user(sitting, step)), sitting.timed(timing):
        try:
            async with (
                host_ports_open(environment),
                network_of_phase(environment, network.baseline, network.agent),
            ):
                run = agent.run(instruction=instruction, environment=environment, context=context)
                await asyncio.wait_for(run, timeout)
        except TimeoutError as error:
            message = f"Agent execution timed out after {timeout} seconds"
            raise AgentTimeoutError(message) from error
        except SystemExit as error:
            # It would end the runner, and every other trial with it.
            raise TrialError(f"the agent called for the program's exit ({error.code!r})") from error


def find_agent_user(sitting: Sitting, step: Step | None) -> str | int | None:
    """Who the agent runs as: the step's user, else the task's; None: the environment's own."""
    own = step.config.agent.user if step else None
    return sitting.plan.task.config.agent.user if own is None else own
