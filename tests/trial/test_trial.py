"""One trial from beginning to end, in a small real environment."""

import asyncio
import json
from pathlib import Path

import pytest

from proctor.errors import AddTestsDirError, NonZeroAgentExitCodeError
from proctor.harbor.trial_result import TrialResult, parse_trial_result
from proctor.trial.agent import AgentContext
from proctor.trial.environment import Environment
from tests.trial.rooms import MountedEnvironment, PlainEnvironment, WatchedEnvironment
from tests.trial.stage import Stage, StageAgent, make_spec, paths_of, run_inside, write_task


def run(stage: Stage) -> TrialResult:
    return asyncio.run(stage.run())


def error_of(result: TrialResult) -> tuple[str, str] | None:
    error = result.exception_info
    return (error.exception_type, error.exception_message) if error else None


@pytest.fixture
def task(tmp_path: Path) -> Path:
    test = "#!/bin/bash\ntest -f /app/done && echo 1 > /logs/verifier/reward.txt\n"
    return write_task(tmp_path / "task", {"tests/test.sh": f"{test}echo tested\n"})


@pytest.mark.parametrize("kind", [PlainEnvironment, MountedEnvironment, WatchedEnvironment])
def test_a_trial_goes_through_its_phases_and_is_scored(
    task: Path, tmp_path: Path, kind: type[PlainEnvironment]
) -> None:
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside("touch /app/done"), kind)
    result = run(stage)
    assert error_of(result) is None
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1.0}
    assert stage.phases == ["setup", "agent-setup", "agent", "collect", "verify", "record"]
    assert stage.environments[0].stops == 1
    trial = paths_of(stage.spec)
    assert parse_trial_result(trial.result_path.read_bytes()) == result
    assert trial.test_stdout_path.read_text() == "tested\n"
    assert stage.agents[0].instructions == ["Do it.\n"]
    assert sorted(path.name for path in trial.trial_dir.iterdir()) == [
        *("agent", "artifacts", "config.json", "findings.json", "record.json", "result.json"),
        *("trial.log", "verifier"),
    ]


def test_the_files_of_a_trial_have_harbors_shape(task: Path, tmp_path: Path) -> None:
    stage = Stage(make_spec(task, tmp_path / "jobs"), run_inside("touch /logs/artifacts/a.txt"))
    run(stage)
    paths = paths_of(stage.spec)
    assert paths.config_path.read_text() == stage.spec.config.model_dump_json(indent=4)
    assert paths.artifacts_manifest_path.read_text() == json.dumps(
        [
            {
                "source": "/logs/artifacts",
                "destination": "artifacts",
                "type": "directory",
                "status": "ok",
            }
        ],
        indent=2,
    )
    assert (paths.artifacts_dir / "a.txt").exists()


def test_a_missing_reward_has_harbors_message(task: Path, tmp_path: Path) -> None:
    stage = Stage(make_spec(task, tmp_path / "jobs"))
    result = run(stage)
    verifier = paths_of(stage.spec).verifier_dir
    assert error_of(result) == (
        "RewardFileNotFoundError",
        f"No reward file found at {verifier}/reward.txt or {verifier}/reward.json",
    )
    assert result.verifier is not None
    assert result.verifier_result is None
    assert "RewardFileNotFoundError" in paths_of(stage.spec).exception_message_path.read_text()


def test_paths_in_messages_are_relative_when_the_trials_directory_is(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(Stage(make_spec(task, Path("jobs"))))
    error = error_of(result)
    assert error is not None
    assert error[1].startswith("No reward file found at jobs/it__abc1234/verifier/reward.txt or")


async def sleep_long(environment: Environment, context: AgentContext) -> None:
    context.n_output_tokens = 7
    await environment.exec("touch /app/done; echo $$ > /app/pid; sleep 300; touch /app/late")


@pytest.mark.parametrize("kind", [PlainEnvironment, WatchedEnvironment])
def test_an_agent_that_takes_too_long_is_killed_and_verified(
    tmp_path: Path, kind: type[PlainEnvironment]
) -> None:
    test = "#!/bin/bash\nkill -0 $(cat /app/pid) || echo 0.5 > /logs/verifier/reward.txt\n"
    task = write_task(tmp_path / "task", {"tests/test.sh": test}, toml="[agent]\ntimeout_sec = 3\n")
    stage = Stage(make_spec(task, tmp_path / "jobs"), sleep_long, kind)
    result = run(stage)
    assert error_of(result) == ("AgentTimeoutError", "Agent execution timed out after 3.0 seconds")
    assert result.verifier_result is not None
    assert result.agent_result is not None
    assert result.agent_result.n_output_tokens == 7
    assert stage.phases[-2:] == ["verify", "record"]


async def fail_by_harbors_class(environment: Environment, context: AgentContext) -> None:
    await environment.exec("touch /app/done")
    # A class of harbor's own is another object with the same name.
    raise type("NonZeroAgentExitCodeError", (RuntimeError,), {})("exit 3")


async def fail_by_our_class(environment: Environment, context: AgentContext) -> None:
    await environment.exec("touch /app/done")
    raise NonZeroAgentExitCodeError("exit 3")


@pytest.mark.parametrize("deed", [fail_by_harbors_class, fail_by_our_class])
def test_an_agent_that_failed_is_verified(task: Path, tmp_path: Path, deed: object) -> None:
    result = run(Stage(make_spec(task, tmp_path / "jobs"), deed))  # type: ignore[arg-type]
    assert error_of(result) == ("NonZeroAgentExitCodeError", "exit 3")
    assert result.verifier_result is not None


async def break_down(environment: Environment, context: AgentContext) -> None:
    await environment.exec("touch /app/done; echo bye > /logs/agent/last.txt")
    raise ValueError("no\udc80pe")


def test_any_other_exception_ends_the_trial_unverified(task: Path, tmp_path: Path) -> None:
    stage = Stage(make_spec(task, tmp_path / "jobs"), break_down)
    result = run(stage)
    assert error_of(result) == ("ValueError", "no\ufffd\ufffd\ufffdpe")
    assert result.verifier is None
    assert (paths_of(stage.spec).agent_dir / "last.txt").read_text() == "bye\n"
    assert paths_of(stage.spec).artifacts_manifest_path.exists()
    assert stage.environments[0].stops == 1
    assert parse_trial_result(paths_of(stage.spec).result_path.read_bytes()) == result


async def leave_the_program(environment: Environment, context: AgentContext) -> None:
    raise SystemExit(4)


def test_an_agent_that_exits_does_not_take_the_runner_along(task: Path, tmp_path: Path) -> None:
    result = run(Stage(make_spec(task, tmp_path / "jobs"), leave_the_program))
    assert error_of(result) == ("TrialError", "the agent called for the program's exit (4)")


def test_the_first_exception_counts(tmp_path: Path) -> None:
    task = write_task(
        tmp_path / "task",
        {"tests/test.sh": "#!/bin/bash\n"},
        toml="[agent]\ntimeout_sec = 0.2\n",
    )
    stage = Stage(make_spec(task, tmp_path / "jobs"), sleep_long)
    result = run(stage)
    assert error_of(result) == ("AgentTimeoutError", "Agent execution timed out after 0.2 seconds")
    assert result.verifier is not None
    assert result.verifier_result is None


def test_a_reward_left_by_a_verifier_that_took_too_long_does_not_count(tmp_path: Path) -> None:
    test = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\nsleep 300\n"
    task = write_task(
        tmp_path / "task", {"tests/test.sh": test}, toml="[verifier]\ntimeout_sec = 0.7\n"
    )
    result = run(Stage(make_spec(task, tmp_path / "jobs")))
    error = ("VerifierTimeoutError", "Verifier execution timed out after 0.7 seconds")
    assert error_of(result) == error
    assert result.verifier_result is None


def test_what_a_verifier_that_took_too_long_left_is_kept(tmp_path: Path) -> None:
    test = "#!/bin/bash\necho one of two\necho 1 > /logs/verifier/reward.txt\nsleep 300\n"
    task = write_task(
        tmp_path / "task", {"tests/test.sh": test}, toml="[verifier]\ntimeout_sec = 3.0\n"
    )
    spec = make_spec(task, tmp_path / "jobs")
    assert run(Stage(spec)).verifier_result is None
    kept = {path.name: path.read_text() for path in paths_of(spec).verifier_dir.iterdir()}
    assert kept == {"test-stdout.txt": "one of two\n", "reward.txt": "1\n"}


class Unstartable(WatchedEnvironment):
    async def start(self, force_build: bool) -> None:
        await asyncio.sleep(300)


def test_an_environment_that_does_not_start_in_time(task: Path, tmp_path: Path) -> None:
    spec = make_spec(task, tmp_path / "jobs", environment_build_timeout_multiplier=0.0005)
    stage = Stage(spec, environment_class=Unstartable)
    result = run(stage)
    assert error_of(result) == (
        "EnvironmentStartTimeoutError",
        "Environment start timed out after 0.3 seconds",
    )
    assert stage.environments[0].stops == 1
    assert result.environment_setup is not None
    assert result.agent_setup is None


class Unstoppable(WatchedEnvironment):
    async def stop(self, delete: bool) -> None:
        await super().stop(delete)
        raise RuntimeError("stuck")


def test_a_failing_stop_is_recorded_beside_the_reward(task: Path, tmp_path: Path) -> None:
    spec = make_spec(task, tmp_path / "jobs")
    result = run(Stage(spec, run_inside("touch /app/done"), Unstoppable))
    assert error_of(result) == ("RuntimeError", "stuck")
    assert result.verifier_result is not None


def test_whatever_making_the_agent_raises_is_the_trials_exception(
    task: Path, tmp_path: Path
) -> None:
    stage = Stage(make_spec(task, tmp_path / "jobs"))
    stage.make_agent = None  # type: ignore[method-assign,assignment]
    result = run(stage)
    assert error_of(result) == ("TypeError", "'NoneType' object is not callable")
    assert paths_of(stage.spec).result_path.exists()
    assert stage.environments == []


def test_verification_can_be_left_out(task: Path, tmp_path: Path) -> None:
    stage = Stage(make_spec(task, tmp_path / "jobs", verifier={"disable": True}))
    result = run(stage)
    assert error_of(result) is None
    assert result.verifier is None
    assert "verify" not in stage.phases


def test_a_template_that_the_host_lacks_fails_the_trial(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", toml='[verifier.env]\nX_NOT_THERE = "${X_NOT_THERE}"\n')
    result = run(Stage(make_spec(task, tmp_path / "jobs")))
    message = "Environment variable 'X_NOT_THERE' not found in host environment"
    assert error_of(result) == ("ValueError", message)


def test_variables_reach_the_tests_the_jobs_over_the_tasks(tmp_path: Path) -> None:
    test = "#!/bin/bash\necho $A$B$C > /logs/verifier/reward.txt\n"
    toml = '[verifier.env]\nA = "1"\nB = "2"\n[environment.env]\nC = "${NOT_THERE:-3}"\n'
    task = write_task(tmp_path / "task", {"tests/test.sh": test}, toml=toml)
    result = run(Stage(make_spec(task, tmp_path / "jobs", verifier={"env": {"B": "7"}})))
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 173.0}


def test_secrets_get_into_no_file(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hush-hush-secret")

    async def blab(environment: Environment, context: AgentContext) -> None:
        context.metadata = {"key": "hush-hush-secret"}
        raise ValueError("refused with hush-hush-secret")

    spec = make_spec(
        task, tmp_path / "jobs", agent={"name": "staged", "env": {"MY_API_KEY": "${MY_API_KEY}"}}
    )
    stage = Stage(spec, blab)
    run(stage)
    assert stage.agents[0].order.extra_env == {
        "PROCTOR_TRAJECTORY": "/logs/agent/trajectory.jsonl",
        "MY_API_KEY": "hush-hush-secret",
    }
    files = [path for path in paths_of(spec).trial_dir.rglob("*") if path.is_file()]
    assert paths_of(spec).record_path in files
    assert [path.name for path in files if b"hush-hush-secret" in path.read_bytes()] == []


async def cancel_during(stage: Stage, phase: str) -> asyncio.Task[TrialResult]:
    task = asyncio.create_task(stage.run())
    while phase not in stage.phases:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)
    task.cancel()
    await task
    return task


@pytest.mark.parametrize("phase", ["setup", "agent", "verify"])
def test_a_cancelled_trial_is_stopped_and_written(tmp_path: Path, phase: str) -> None:
    task = write_task(tmp_path / "task", {"tests/test.sh": "#!/bin/bash\nsleep 300\n"})
    deed = run_inside("echo x > /logs/agent/x; sleep 300") if phase == "agent" else run_inside(":")
    kind = Unstartable if phase == "setup" else WatchedEnvironment
    stage = Stage(make_spec(task, tmp_path / "jobs"), deed, kind)
    asyncio.run(cancel_during(stage, phase))
    written = parse_trial_result(paths_of(stage.spec).result_path.read_bytes())
    assert error_of(written) == ("CancelledError", "")
    assert written.finished_at is not None
    assert stage.environments[0].stops == 1
    if phase == "agent":
        assert (paths_of(stage.spec).agent_dir / "x").exists()
        assert written.verifier is None


def test_a_trial_directory_that_cannot_be_made_is_an_errored_trial(
    task: Path, tmp_path: Path
) -> None:
    (tmp_path / "jobs").write_text("in the way")
    result = run(Stage(make_spec(task, tmp_path / "jobs")))
    error = error_of(result)
    assert error is not None
    assert error[0] in ("NotADirectoryError", "FileExistsError")


def test_what_an_agent_says_of_itself_is_kept_as_far_as_a_file_can_hold_it(
    task: Path, tmp_path: Path
) -> None:
    async def say(environment: Environment, context: AgentContext) -> None:
        context.n_input_tokens = "many"  # type: ignore[assignment]
        context.n_output_tokens = 5
        context.metadata = {"thing": object()}

    stage = Stage(make_spec(task, tmp_path / "jobs", verifier={"disable": True}), say)
    result = run(stage)
    assert error_of(result) is None
    assert result.agent_result == AgentContext(n_output_tokens=5)
    assert "the agent's n_input_tokens cannot be used" in paths_of(stage.spec).log_path.read_text()


def test_an_agent_that_said_nothing_may_say_it_from_its_logs(task: Path, tmp_path: Path) -> None:
    def backfill(self: StageAgent, context: AgentContext) -> None:
        context.n_output_tokens = len((self.order.logs_dir / "log.txt").read_text())

    kind = type("Backfilling", (StageAgent,), {"populate_context_post_run": backfill})
    stage = Stage(make_spec(task, tmp_path / "jobs"))
    stage.make_agent = lambda order: kind(order, run_inside("echo 123 > /logs/agent/log.txt"))  # type: ignore[method-assign]
    result = run(stage)
    assert result.agent_result == AgentContext(n_output_tokens=4)


class Unreceptive(PlainEnvironment):
    """Takes no directory in."""

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        raise OSError(28, "No space left on device")


def test_tests_that_cannot_be_uploaded_have_harbors_message(task: Path, tmp_path: Path) -> None:
    stage = Stage(make_spec(task, tmp_path / "jobs"), environment_class=Unreceptive)
    result = run(stage)
    expected = AddTestsDirError("Failed to add tests directory to environment.")
    assert error_of(result) == (type(expected).__name__, str(expected))
    assert result.verifier_result is None
    assert "No space left on device" in paths_of(stage.spec).exception_message_path.read_text()
