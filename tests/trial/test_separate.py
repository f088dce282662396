"""A verifier in an environment of its own, and verifiers of the job's own."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proctor.harbor.trial_result import TrialResult
from proctor.trial.environment import Environment, EnvironmentOrder
from proctor.trial.verification import name_session
from tests.trial.rooms import PlainEnvironment
from tests.trial.stage import Stage, make_spec, run_inside, write_task

SEPARATE = '[verifier]\nenvironment_mode = "separate"\ntimeout_sec = 20.0\n'


class Built(PlainEnvironment):
    """One whose tests are in its image, where it is built from a task's tests."""

    def __init__(self, order: EnvironmentOrder) -> None:
        super().__init__(order)
        if order.environment_dir.name == "tests":
            target = self.tree.place("/tests")
            target.mkdir()
            for path in order.environment_dir.iterdir():
                (target / path.name).write_bytes(path.read_bytes())


def run(stage: Stage) -> TrialResult:
    return asyncio.run(stage.run())


def test_only_artifacts_get_to_a_separate_verifier(tmp_path: Path) -> None:
    test = "#!/bin/bash\n[ -e /app/secret ] && exit\n"
    test += "cat /app/kept/n /logs/artifacts/m | paste -sd+ | tr + . > /logs/verifier/reward.txt\n"
    toml = f'artifacts = ["/app/kept"]\n{SEPARATE}'
    task = write_task(tmp_path / "task", {"tests/test.sh": test}, toml=toml)
    command = "mkdir /app/kept; echo 1 > /app/kept/n; echo 5 > /logs/artifacts/m; touch /app/secret"
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside(command), Built)
    result = run(stage)
    assert result.exception_info is None
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1.5}
    agents, verifiers = stage.environments
    assert (agents.stops, verifiers.stops) == (1, 1)
    assert verifiers.session_id == "it__abc1234__verifier__trial"
    assert [mount["target"] for mount in verifiers.order.mounts] == ["/logs/verifier"]
    assert verifiers.order.environment_dir == task / "tests"


def test_long_names_of_verifiers_environments_are_cut_with_a_digest() -> None:
    assert name_session("a b", "trial") == "a_b__verifier__trial"
    long = name_session("x" * 70, "one")
    assert len(long) == 63
    assert long.startswith("x" * 53 + "__")


@dataclass
class Judge:
    """A verifier of the kind that harbor's jobs name by import path."""

    task: Any
    trial_paths: Any
    environment: Environment
    override_env: dict[str, str] | None
    logger: Any
    verifier_env: dict[str, str] | None
    step_name: str | None
    bonus: float = 0.0

    async def verify(self) -> Any:
        told = await self.environment.exec("cat /app/said")
        tests = len(list(self.task.paths.tests_dir.iterdir()))
        self.rewards = {"length": len(told.stdout or ""), "tests": tests, "bonus": self.bonus}
        return self


def test_a_verifier_by_import_path_judges_by_itself(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task")
    own = {"import_path": "tests.trial.test_separate:Judge", "kwargs": {"bonus": 0.5}}
    spec = make_spec(task, tmp_path / "jobs", verifier=own)
    result = run(Stage(spec, run_inside("echo hello > /app/said")))
    assert result.exception_info is None
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"length": 6, "tests": 1, "bonus": 0.5}


@pytest.mark.parametrize(
    ("own", "error"),
    [
        (
            {"kwargs": {"b": 1, "a": 2}},
            "Verifier kwargs require verifier.import_path. Set --verifier-import-path or "
            "remove verifier kwargs: a, b",
        ),
        (
            {"import_path": "tests.trial.test_separate:Nobody"},
            "tests.trial.test_separate:Nobody: tests.trial.test_separate has no class 'Nobody'",
        ),
    ],
)
def test_a_verifier_that_cannot_be_had_fails_the_trial(
    tmp_path: Path, own: dict[str, Any], error: str
) -> None:
    spec = make_spec(write_task(tmp_path / "task"), tmp_path / "jobs", verifier=own)
    result = run(Stage(spec))
    assert result.exception_info is not None
    assert result.exception_info.exception_message == error
