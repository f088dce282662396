"""Tasks of several steps, beside what real harbor recorded of them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proctor.harbor.trial_result import TrialResult
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from tests.trial.rooms import MountedEnvironment, PlainEnvironment, WatchedEnvironment
from tests.trial.stage import Stage, make_spec, paths_of, write_task

DATA = Path(__file__).parent.parent / "data" / "harbor"
JOB = DATA / "jobs" / "10-multistep-oracle-mounted"
TRIALS = sorted(path.parent for path in JOB.glob("*/result.json"))


def run(stage: Stage) -> TrialResult:
    return asyncio.run(stage.run())


def solve_each(stage: Stage) -> None:
    """Let the agent do each step's reference solution, as the oracle does."""
    steps = iter(stage.spec.task.steps)

    async def deed(environment: Environment, context: AgentContext) -> None:
        step = next(steps)
        await environment.upload_dir(step.directory / "solution", "/solution")
        await environment.exec("bash /solution/solve.sh > /logs/agent/oracle.txt 2>&1")

    stage.deed = deed


def summary(document: dict[str, Any]) -> dict[str, Any]:
    """What two runs of one trial have in common."""

    def told(part: dict[str, Any]) -> dict[str, Any]:
        error = part["exception_info"]
        return {
            "rewards": part["verifier_result"],
            "error": error and [error["exception_type"], error["exception_message"]],
            "ran": part["agent_execution"] is not None,
            "verified": part["verifier"] is not None,
            "agent_result": part["agent_result"],
        }

    steps = {step["step_name"]: told(step) for step in document["step_results"]}
    return {"trial": told(document), "steps": steps}


@pytest.mark.parametrize("kind", [MountedEnvironment, PlainEnvironment, WatchedEnvironment])
@pytest.mark.parametrize("recorded", TRIALS, ids=lambda path: path.name.partition("__")[0])
def test_steps_come_out_as_in_harbor(
    recorded: Path, kind: type[PlainEnvironment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = json.loads((recorded / "result.json").read_text())
    monkeypatch.chdir(tmp_path)
    trials = Path("jobs/10-multistep-oracle-mounted")
    spec = make_spec(DATA / "tasks" / "multistep" / theirs["task_name"], trials)
    spec.config.trial_name = theirs["trial_name"]
    stage = Stage(spec, environment_class=kind)
    solve_each(stage)
    run(stage)
    ours = json.loads(paths_of(spec).result_path.read_text())
    assert summary(ours) == summary(theirs)
    assert list(ours) == list(theirs)
    if kind is MountedEnvironment:
        assert files_of(paths_of(spec).trial_dir) == files_of(recorded)


def files_of(trial: Path) -> dict[str, str]:
    """What lies in the steps, and which directories are left at the trial's root."""
    steps = {
        str(path.relative_to(trial)): path.read_text()
        for path in (trial / "steps").rglob("*")
        if path.is_file()
    }
    return {**steps, **{path.name: "" for path in trial.iterdir() if path.is_dir()}}


def step_task(directory: Path, toml: str, test: str) -> Path:
    files = {
        "steps/one/instruction.md": "First.\n",
        "steps/one/tests/test.sh": test,
        "steps/two/instruction.md": "Second.\n",
        "tests/test.sh": "#!/bin/bash\necho 0.5 > /logs/verifier/reward.txt\n",
    }
    return write_task(directory, files, toml=f'{toml}\n[[steps]]\nname = "two"\n')


def test_a_steps_verifier_that_takes_too_long_is_a_plain_timeout(tmp_path: Path) -> None:
    toml = '[[steps]]\nname = "one"\n[steps.verifier]\ntimeout_sec = 0.5'
    test = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt; sleep 300\n"
    stage = Stage(make_spec(step_task(tmp_path / "task", toml, test), tmp_path / "jobs"))
    result = run(stage)
    assert result.exception_info is None
    assert result.verifier_result is None
    (step,) = result.step_results or []
    assert step.exception_info is not None
    assert step.exception_info.exception_type == "TimeoutError"
    assert step.exception_info.exception_message == ""


def test_a_step_without_tests_of_its_own_has_the_shared_ones(tmp_path: Path) -> None:
    toml = '[[steps]]\nname = "one"'
    test = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
    stage = Stage(make_spec(step_task(tmp_path / "task", toml, test), tmp_path / "jobs"))
    result = run(stage)
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 0.75}
    assert stage.agents[0].instructions == ["First.\n", "Second.\n"]
    assert stage.phases == [
        *("setup", "agent-setup"),
        *(f"one: {phase}" for phase in ("setup", "agent", "collect", "verify")),
        *(f"two: {phase}" for phase in ("setup", "agent", "collect", "verify")),
        "record",
    ]
    record = json.loads(paths_of(stage.spec).record_path.read_text())
    assert record["inputs"]["instruction"] == "First.\n\n\nSecond.\n"


def test_a_failing_healthcheck_stands_on_its_step(tmp_path: Path) -> None:
    toml = '[[steps]]\nname = "one"\n[steps.healthcheck]\ncommand = "false"\nretries = 1'
    stage = Stage(make_spec(step_task(tmp_path / "task", toml, "#!/bin/bash\n"), tmp_path / "jobs"))
    result = run(stage)
    (step,) = result.step_results or []
    assert step.exception_info is not None
    assert step.exception_info.exception_type == "HealthcheckError"
    assert result.exception_info is None
    record = json.loads(paths_of(stage.spec).record_path.read_text())
    (tag,) = record["evaluation"]["error_taxonomy"]
    assert tag["category"] == "harbor_trial_failed"
