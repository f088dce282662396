"""Verifiers given by import path: classes written for harbor, constructed as harbor does.

The class gets harbor's constructor arguments. Its task is a view with harbor's attribute names, as
far as verifiers use them: config, paths, name, instruction. It returns rewards; the reward files
are not read.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from proctor.harbor.trial_result import VerifierResult
from proctor.plugin import load_class
from proctor.reward.read import validate_rewards
from proctor.task.config import TaskConfig
from proctor.task.directory import Step, Task
from proctor.trial.environment import Environment
from proctor.trial.trial_run import TrialRun

VERIFIER_METHODS = ("verify",)
"""Methods that harbor's interface requires."""


class _Answer(Protocol):
    rewards: object


class _Verifier(Protocol):
    async def verify(self) -> _Answer: ...


class CustomVerifier(msgspec.Struct, frozen=True):
    """A verifier class given by the job."""

    made: _Verifier

    async def verify(self) -> VerifierResult:
        """Return its rewards."""
        answer = await self.made.verify()
        return VerifierResult(rewards=validate_rewards(answer.rewards))


def make_verifier(
    run: TrialRun, environment: Environment, step: Step | None
) -> CustomVerifier | None:
    """Make the job's verifier; None if the task's tests verify.

    Raises:
        PluginError: the class cannot be loaded.
        ValueError: arguments are given without a class.
    """
    config = run.spec.config.verifier
    if config.import_path is None:
        if config.kwargs:
            raise ValueError(
                "Verifier kwargs require verifier.import_path. Set --verifier-import-path or "
                f"remove verifier kwargs: {', '.join(sorted(config.kwargs))}"
            )
        return None
    kind = cast("Callable[..., Any]", load_class(config.import_path, "verifier", VERIFIER_METHODS))
    made: _Verifier = kind(
        task=TaskView(run.spec.task),
        trial_paths=run.paths,
        environment=environment,
        override_env=dict(config.env) or None,
        logger=run.logger,
        verifier_env=(step.config.verifier.env or None) if step else None,
        step_name=step.name if step else None,
        **config.kwargs,
    )
    return CustomVerifier(made)


class TaskPathsView(msgspec.Struct, frozen=True):
    """The paths of a task under harbor's names."""

    task_dir: Path

    @property
    def tests_dir(self) -> Path:
        """The tests directory."""
        return self.task_dir / "tests"

    @property
    def test_path(self) -> Path:
        """The test script."""
        return self.tests_dir / "test.sh"

    @property
    def solution_dir(self) -> Path:
        """The reference solution."""
        return self.task_dir / "solution"

    @property
    def environment_dir(self) -> Path:
        """The build context of the environment."""
        return self.task_dir / "environment"

    @property
    def instruction_path(self) -> Path:
        """The instruction file."""
        return self.task_dir / "instruction.md"

    @property
    def config_path(self) -> Path:
        """task.toml."""
        return self.task_dir / "task.toml"

    @property
    def steps_dir(self) -> Path:
        """The directory of steps."""
        return self.task_dir / "steps"

    def step_dir(self, step_name: str) -> Path:
        """The directory of one step."""
        return self.steps_dir / step_name

    def step_tests_dir(self, step_name: str) -> Path:
        """The tests of one step."""
        return self.step_dir(step_name) / "tests"


class TaskView(msgspec.Struct, frozen=True):
    """A task under harbor's names."""

    task: Task

    @property
    def task_dir(self) -> Path:
        """The task's directory."""
        return self.task.directory

    @property
    def paths(self) -> TaskPathsView:
        """Paths of its files."""
        return TaskPathsView(self.task.directory)

    @property
    def config(self) -> TaskConfig:
        """task.toml."""
        return self.task.config

    @property
    def name(self) -> str:
        """Its name, including the organisation."""
        return self.task.name

    @property
    def short_name(self) -> str:
        """Its name without the organisation."""
        return self.task.short_name

    @property
    def instruction(self) -> str:
        """The instruction for the agent."""
        return self.task.instruction

    @property
    def has_steps(self) -> bool:
        """Whether it has several steps."""
        return bool(self.task.steps)

    def step_instruction(self, step_name: str) -> str:
        """The instruction of a step."""
        return next(step.instruction for step in self.task.steps if step.name == step_name)
