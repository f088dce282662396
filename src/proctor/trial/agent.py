"""Protocol of agents: harbor's interface, so agents written for harbor run unchanged.

With it: what an agent is made from, and the factories that a job supplies to its trials.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from proctor.harbor.configs import AgentConfig
from proctor.harbor.trial_result import AgentContext
from proctor.task.directory import Task
from proctor.task.environment import McpServer
from proctor.trial.environment import Environment, MakeEnvironment
from proctor.trial.models import Models
from proctor.trial.paths import TrialPaths

__all__ = ["Agent", "AgentContext", "AgentOrder", "Kinds", "MakeAgent"]


class Agent(Protocol):
    """An agent that solves tasks.

    A trial also uses these optional methods: `populate_context_post_run(context)`,
    `to_agent_info()`, and `take_findings()`, which returns the findings since its last call. If an
    agent has `writes_trace = True`, it writes its own trace while it works, and the output of its
    commands is not recorded.
    """

    def name(self) -> str:
        """Its name in results; a static method in harbor's agents."""

    def version(self) -> str | None:
        """Its version, if it has one."""

    async def setup(self, environment: Environment) -> None:
        """Install what it needs."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        """Do the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOrder:
    """Arguments for creating an agent."""

    config: AgentConfig
    """The job's options: name or import path, model, kwargs, env."""
    logs_dir: Path
    """<trial>/agent."""
    trial_paths: TrialPaths
    task: Task
    """Only passed on to the oracle."""
    timeout_sec: float | None
    """Its time limit in seconds, for the oracle."""
    mcp_servers: Sequence[McpServer] = ()
    skills_dir: str | None = None
    """Directory of the skills inside the environment."""
    extra_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of its commands: resolved ones from --ae, and the name of its trajectory."""
    logger: logging.Logger


type MakeAgent = Callable[[AgentOrder], Agent]


@dataclass(frozen=True, slots=True)
class Kinds:
    """Factories of agents and environments, and the model gateway, supplied by the job."""

    make_agent: MakeAgent
    make_environment: MakeEnvironment
    models: Models | None = None
    """The job's model gateway; None without one."""

    @property
    def model_port(self) -> int | None:
        """Port of the gateway; None without one."""
        return None if self.models is None else self.models.port
