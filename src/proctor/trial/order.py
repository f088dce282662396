"""What an agent or an environment is made from: harbor's constructor arguments, as values."""

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
from proctor.trial.paths import TrialPaths


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentOrder:
    """An environment that a trial wants."""

    config: EnvironmentConfig
    """The job's wishes: type or import path, overrides, kwargs."""
    environment_dir: Path
    """What it is built from: the task's environment/, or the tests of a separate verifier."""
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
    """Variables of every command, resolved."""
    mounts: Sequence[Mapping[str, object]]
    """harbor's {type, source, target}: the log directories, and what the job adds."""
    logger: logging.Logger


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOrder:
    """An agent that a trial wants."""

    config: AgentConfig
    """The job's wishes: name or import path, model, kwargs, env."""
    logs_dir: Path
    """<trial>/agent."""
    trial_paths: TrialPaths
    task: Task
    """For the oracle alone: no other agent is given it."""
    timeout_sec: float | None
    """Seconds it will be given, for the oracle."""
    mcp_servers: Sequence[McpServer] = ()
    skills_dir: str | None = None
    """Where skills are, inside the environment."""
    extra_env: Mapping[str, str] = field(default_factory=dict)
    """--ae, resolved."""
    logger: logging.Logger


type MakeEnvironment = Callable[[EnvironmentOrder], Environment]
type MakeAgent = Callable[[AgentOrder], Agent]


@dataclass(frozen=True, slots=True)
class Kinds:
    """How agents and environments are made; a job brings the real ones."""

    make_agent: MakeAgent
    make_environment: MakeEnvironment
