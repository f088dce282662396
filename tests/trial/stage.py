"""Agents, tasks and plans for the tests of trials: each a small real thing."""

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.harbor.configs import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from proctor.harbor.trial_result import TrialResult
from proctor.task.digests import load_digests
from proctor.task.directory import load_task
from proctor.trial.agent import AgentContext, AgentOrder, Kinds
from proctor.trial.clock import SYSTEM, Clock
from proctor.trial.environment import Environment, EnvironmentOrder
from proctor.trial.paths import TrialPaths
from proctor.trial.spec import RecordFields, TrialSpec
from proctor.trial.trial import run_trial
from tests.trial.rooms import PlainEnvironment, WatchedEnvironment

type Deed = Callable[[Environment, AgentContext], Awaitable[None]]

PASSING = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"


def write_task(directory: Path, files: Mapping[str, str] = {}, toml: str = "") -> Path:
    """A task directory; `files` adds to and replaces what an ordinary one has."""
    ordinary = {
        "task.toml": f'version = "1.0"\n{toml}',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": "FROM debian:12\n",
        "tests/test.sh": PASSING,
    }
    for name, text in {**ordinary, **files}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def paths_of(spec: TrialSpec) -> TrialPaths:
    """Where a trial of these tests leaves everything."""
    return TrialPaths(spec.config.trials_dir / spec.name)


def load_findings(spec: TrialSpec) -> list[dict[str, Any]]:
    """The findings of a trial, but for the one that all have here: no room of these is clean."""
    path = paths_of(spec).findings_path
    found = json.loads(path.read_text()) if path.exists() else []
    return [each for each in found if each["code"] != "clean-room-skipped"]


async def do_nothing(environment: Environment, context: AgentContext) -> None:
    """Leave everything as it is."""


def run_inside(command: str) -> Deed:
    """Run one command inside."""

    async def deed(environment: Environment, context: AgentContext) -> None:
        await environment.exec(command)

    return deed


@dataclass
class StageAgent:
    """An agent that does one deed."""

    order: AgentOrder
    deed: Deed
    instructions: list[str] = field(default_factory=list)

    @staticmethod
    def name() -> str:
        return "staged"

    def version(self) -> str | None:
        return "1.2.3"

    async def setup(self, environment: Environment) -> None:
        """Nothing to install."""

    async def run(self, instruction: str, environment: Environment, context: AgentContext) -> None:
        self.instructions.append(instruction)
        await self.deed(environment, context)


@dataclass
class Stage:
    """Everything for one trial; what was made is kept for looking at."""

    spec: TrialSpec
    deed: Deed = do_nothing
    environment_class: type[PlainEnvironment] = WatchedEnvironment
    clock: Clock = SYSTEM
    phases: list[str] = field(default_factory=list)
    environments: list[PlainEnvironment] = field(default_factory=list)
    agents: list[StageAgent] = field(default_factory=list)

    @property
    def kinds(self) -> Kinds:
        return Kinds(self.make_agent, self.make_environment)

    def make_agent(self, order: AgentOrder) -> StageAgent:
        self.agents.append(StageAgent(order, self.deed))
        return self.agents[-1]

    def make_environment(self, order: EnvironmentOrder) -> Environment:
        made = self.environment_class(order)
        self.environments.append(made)
        return made

    async def run(self) -> TrialResult:
        directory = paths_of(self.spec).trial_dir
        return await run_trial(self.spec, directory, self.kinds, self.phases.append, self.clock)


def make_spec(
    task_dir: Path, trials: Path, *, compatible: bool = False, **config: Any
) -> TrialSpec:
    """A trial at a task, with whatever config beyond the ordinary."""
    task = load_task(task_dir, verifying=False)
    settings: dict[str, Any] = {
        "agent": AgentConfig(name="staged"),
        "environment": EnvironmentConfig(import_path="tests.trial.rooms:PlainEnvironment"),
        **config,
    }
    return TrialSpec(
        config=TrialConfig(
            task=TaskConfig(path=task_dir, source="set"),
            trial_name="it__abc1234",
            trials_dir=trials,
            **settings,
        ),
        uri=(Path(os.path.realpath(trials)) / "it__abc1234").as_uri(),
        task=task,
        digests=load_digests(task.directory),
        record=RecordFields(experiment="exp"),
        is_harbor_compatible=compatible,
    )
