"""What a trial brings into its environment and fetches from it: users, networks, skills, files."""

import asyncio
import json
from pathlib import Path
from typing import ClassVar

import pytest

from proctor.harbor.trial_result import TrialResult
from proctor.task.network import NetworkPolicy
from proctor.trial.environment import Capabilities
from tests.trial.rooms import PlainEnvironment
from tests.trial.stage import Stage, make_spec, paths_of, run_inside, write_task


def run(stage: Stage) -> TrialResult:
    return asyncio.run(stage.run())


def error_of(result: TrialResult) -> tuple[str, str] | None:
    error = result.exception_info
    return (error.exception_type, error.exception_message) if error else None


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return write_task(tmp_path / "task")


def test_users_are_those_of_the_task(tmp_path: Path) -> None:
    seen: list[tuple[str, object]] = []

    class Noting(PlainEnvironment):
        async def exec(self, command: str, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
            seen.append((command, kwargs.get("user") or self.default_user))
            return await super().exec(command, *args, **kwargs)  # type: ignore[arg-type]

    toml = '[agent]\nuser = "alice"\n[verifier]\nuser = 1001\n'
    task = write_task(tmp_path / "task", toml=toml)
    spec = make_spec(task, tmp_path / "jobs", compatible=True)
    assert error_of(run(Stage(spec, run_inside("id"), Noting))) is None
    assert seen == [
        ("id", "alice"),
        ("chmod +x /tests/test.sh", "root"),
        ("(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1", 1001),
    ]


def test_a_healthcheck_that_never_passes(tmp_path: Path) -> None:
    toml = '[environment.healthcheck]\ncommand = "false"\ninterval_sec = 0.01\nretries = 2\n'
    stage = Stage(make_spec(write_task(tmp_path / "task", toml=toml), tmp_path / "jobs"))
    message = "Healthcheck failed after 2 consecutive retries: false"
    assert error_of(run(stage)) == ("HealthcheckError", message)
    assert stage.phases == ["setup", "healthcheck", "record"]


def test_failures_within_the_start_period_do_not_count(tmp_path: Path) -> None:
    command = "test -e /tmp/b || { mv /tmp/a /tmp/b 2>/dev/null || touch /tmp/a; false; }"
    toml = f'[environment.healthcheck]\ncommand = "{command}"\nretries = 1\n'
    toml += "start_period_sec = 60\nstart_interval_sec = 0.01\n"
    stage = Stage(make_spec(write_task(tmp_path / "task", toml=toml), tmp_path / "jobs"))
    assert error_of(run(stage)) is None


def test_skills_are_put_where_the_agent_is_told(tmp_path: Path, task: Path) -> None:
    skill = tmp_path / "skills" / "sing"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("la\n")
    spec = make_spec(task, tmp_path / "jobs", agent={"name": "staged", "skills": [skill.parent]})
    stage = Stage(spec, run_inside("cp -r /harbor/skills/. /logs/agent/"))
    run(stage)
    assert stage.agents[0].order.skills_dir == "/harbor/skills"
    assert (paths_of(spec).agent_dir / "sing/SKILL.md").read_text() == "la\n"
    assert "skills" in stage.phases


def test_a_trace_in_the_workspace_is_collected_also_from_a_killed_agent(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", toml="[agent]\ntimeout_sec = 1.0\n")
    line = json.dumps({"step": 1, "role": "assistant", "content": "hi"})
    command = f"echo '{line}' > /workspace/trajectory.jsonl; mkdir /workspace/artifacts; "
    command += "echo png > /workspace/artifacts/a.png; sleep 300"
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside(command))
    run(stage)
    agent = paths_of(stage.spec).agent_dir
    assert json.loads((agent / "trajectory.jsonl").read_text()) == json.loads(line)
    assert (agent / "artifacts/a.png").read_text() == "png\n"
    record = json.loads(paths_of(stage.spec).record_path.read_text())
    assert record["outputs"]["trajectory_path"] == "agent/trajectory.jsonl"


def test_artifacts_are_fetched_by_name_and_pattern(tmp_path: Path) -> None:
    toml = 'artifacts = ["/app/out.txt", "/app/none.txt", '
    toml += '{source = "/app/d", destination = "/x/d", exclude = ["*.log"]}, '
    toml += '{source = "/app/d", destination = "../../up"}]\n'
    task = write_task(tmp_path / "task", toml=toml)
    command = "echo o > /app/out.txt; mkdir /app/d; touch /app/d/a.log /app/d/b.txt"
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside(command))
    run(stage)
    manifest = json.loads(paths_of(stage.spec).artifacts_manifest_path.read_text())
    assert [(entry["destination"], entry["type"], entry["status"]) for entry in manifest] == [
        ("artifacts", "directory", "ok"),
        ("artifacts/out.txt", "file", "ok"),
        ("artifacts/none.txt", "file", "failed"),
        ("artifacts/x/d", "directory", "ok"),
        ("artifacts/../../up", "file", "failed"),
    ]
    kept = paths_of(stage.spec).artifacts_dir / "x/d"
    assert [path.name for path in kept.iterdir()] == ["b.txt"]


class Switching(PlainEnvironment):
    """One whose network can be changed after the start."""

    policies: ClassVar[list[str]] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(disable_internet=True, dynamic_network_policy=True)

    async def set_network_policy(self, network_policy: NetworkPolicy) -> None:
        self.policies.append(network_policy.mode)


def test_a_phase_with_a_network_of_its_own_has_it_for_as_long_as_it_runs(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", toml='[agent]\nnetwork_mode = "no-network"\n')
    stage = Stage(make_spec(task, tmp_path / "jobs"), environment_class=Switching)
    Switching.policies.clear()
    assert error_of(run(stage)) is None
    assert Switching.policies == ["no-network", "public"]


def test_a_network_that_the_environment_cannot_give_is_refused_before_it_starts(
    tmp_path: Path,
) -> None:
    task = write_task(tmp_path / "task", toml='[agent]\nnetwork_mode = "no-network"\n')
    result = run(Stage(make_spec(task, tmp_path / "jobs")))
    error = error_of(result)
    assert error is not None
    assert error[0] == "ValueError"
    assert error[1].startswith("network_mode='no-network' is not supported by ")
    assert result.environment_setup is None
