"""Constructor arguments of agents and environments, as in harbor."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.harbor.configs import AgentConfig, EnvironmentConfig
from proctor.task.directory import Task
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.environment import McpServer
from proctor.task.network import NetworkPolicy
from proctor.trial.agent import Agent
from proctor.trial.environment import Environment
from proctor.trial.models import Models
from proctor.trial.paths import TrialPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentOrder:
    """Arguments for creating an environment."""

    config: EnvironmentConfig
    """The job's options: type or import path, overrides, kwargs."""
    environment_dir: Path
    """Build context: the task's environment/, or the tests for a separate verifier."""
    environment_name: str
    """Short name of the task."""
    session_id: str
    """The trial's name, or one made from it for a separate verifier."""
    trial_paths: TrialPaths
    task_env_config: TaskEnvironment
    """[environment] of the task, or [verifier.environment]."""
    network: NetworkPolicy
    """The baseline in effect."""
    persistent_env: Mapping[str, str]
    """Resolved variables of every command."""
    mounts: Sequence[Mapping[str, object]]
    """harbor's {type, source, target}: the log directories, and what the job adds."""
    logger: logging.Logger
    model_port: int | None = None
    """Port of the host's loopback where the job's model gateway listens; None without one."""


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


type MakeEnvironment = Callable[[EnvironmentOrder], Environment]
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
