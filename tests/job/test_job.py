"""A job from its first file to its result, in the environment that does nothing."""

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proctor.errors import JobError, RecordError, TaskError, UnsupportedError
from proctor.harbor.configs import AgentConfig, EnvironmentConfig, MetricConfig, RetryConfig
from proctor.harbor.job import load_job
from proctor.harbor.stats import JobStats
from proctor.harbor.trial_result import TrialResult
from tests.job.jobs import (
    Listener,
    agent,
    load_json,
    make_config,
    make_task,
    make_tasks,
    resume,
    run,
    trial_dirs,
)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return make_tasks(tmp_path / "set", ["b", "a", "c"])


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


def test_a_job_leaves_harbors_files_and_ours(dataset: Path, jobs: Path) -> None:
    outcome = run(make_config(dataset, jobs))
    names = {path.name for path in outcome.directory.iterdir() if path.is_file()}
    assert names == {
        "config.json",
        "lock.json",
        "result.json",
        "job.log",
        "proctor.json",
        "runner.lock",
    }
    written = load_json(outcome.directory / "result.json")
    assert written["finished_at"] is not None
    assert written["stats"]["n_completed_trials"] == 3
    assert written["stats"]["evals"]["nop__set"]["metrics"] == [{"mean": 1.0}]
    assert outcome.counts.scored == outcome.counts.run == outcome.counts.planned == 3
    job = load_job(str(outcome.directory))
    assert job.finished
    assert not job.problems
    assert not job.broken


def test_attempts_come_first_then_tasks_then_agents(dataset: Path, jobs: Path) -> None:
    listener = Listener()
    agents = [AgentConfig(name="nop"), AgentConfig(name="nop", model_name="p/m")]
    config = make_config(dataset, jobs, agents=agents, n_attempts=2, n_concurrent=1)
    outcome = run(config, listener)
    assert [task for task, _ in listener.started] == [*"aabbcc", *"aabbcc"]
    configs = [load_json(path / "config.json") for path in trial_dirs(outcome.directory)]
    assert [config["agent"]["model_name"] for config in configs] == [None, "p/m"] * 6
    names = [path.name for path in trial_dirs(outcome.directory)]
    stats = load_json(outcome.directory / "result.json")["stats"]["evals"]["nop__set"]
    assert stats["reward_stats"]["reward"]["1.0"] == names[::2]


def test_no_more_run_at_once_than_were_asked_for(dataset: Path, jobs: Path, tmp_path: Path) -> None:
    counting = agent("Counting", place=str(tmp_path))
    run(make_config(dataset, jobs, agents=[counting], n_attempts=4, n_concurrent=3))
    seen = [int(line) for line in (tmp_path / "most").read_text(encoding="ascii").split()]
    assert len(seen) == 12
    assert max(seen) == 3


def test_a_retry_keeps_the_failed_attempt(dataset: Path, jobs: Path) -> None:
    listener = Listener()
    retry = RetryConfig(max_retries=3, min_wait_sec=0.01)
    config = make_config(dataset, jobs, agents=[agent("Flaky", fails=2)], retry=retry)
    outcome = run(config, listener)
    assert (
        outcome.counts.retried
        == load_json(outcome.directory / "result.json")["stats"]["n_retries"]
        == 6
    )
    assert outcome.counts.errored == 0
    told = {
        (attempt, result.exception_info and result.exception_info.exception_message, delay)
        for attempt, result, delay in listener.retried
    }
    assert told == {(1, "flaky failure 1", 0.01), (2, "flaky failure 2", 0.01)}
    # Only what counts has ended.
    assert (len(listener.ended), listener.most_done) == (3, 3)
    for trial in trial_dirs(outcome.directory):
        for number in ("1", "2"):
            kept = trial / "attempts" / number
            result = load_json(kept / "result.json")
            message = result["exception_info"]["exception_message"]
            assert message == f"flaky failure {number}"
            assert result["trial_name"] == trial.name
            words = (kept / "agent" / "words.txt").read_text(encoding="ascii")
            assert words == f"attempt {number}\n"
            record = load_json(kept / "record.json")
            assert record["trial_id"] == f"{trial.name}.attempt-{number}"
        assert load_json(trial / "result.json")["exception_info"] is None
        assert load_json(trial / "record.json")["trial_id"] == trial.name
    log = (outcome.directory / "job.log").read_text(encoding="utf-8")
    assert "failed with exception ConnectionError. Retrying in 0.01 seconds..." in log


def test_a_trial_that_keeps_failing_is_counted_once(dataset: Path, jobs: Path) -> None:
    retry = RetryConfig(max_retries=1, min_wait_sec=0)
    config = make_config(dataset, jobs, agents=[agent("Flaky", fails=9)], retry=retry)
    outcome = run(config)
    assert (outcome.counts.errored, outcome.counts.zero_by_missing) == (3, 3)
    stats = load_json(outcome.directory / "result.json")["stats"]
    assert stats["n_completed_trials"] == stats["n_errored_trials"] == 3
    assert stats["evals"]["flaky__set"]["metrics"] == [{"mean": 0.0}]


def test_a_bad_task_is_reported_and_the_rest_runs(dataset: Path, jobs: Path) -> None:
    (dataset / "bad" / "environment").mkdir(parents=True)
    (dataset / "bad" / "task.toml").write_text("[agent\n", encoding="utf-8")
    listener = Listener()
    outcome = run(make_config(dataset, jobs), listener)
    assert [refused.name for refused in outcome.refused] == ["bad"]
    assert any("Task bad is left out" in sentence for sentence in listener.sentences)
    assert outcome.counts.planned == 3


def test_a_trial_whose_directory_vanishes_is_an_error_and_the_rest_runs(
    dataset: Path, jobs: Path
) -> None:
    config = make_config(dataset, jobs, agents=[agent("Vanishing"), AgentConfig(name="nop")])
    outcome = run(config)
    assert (outcome.counts.run, outcome.counts.errored, outcome.counts.scored) == (6, 3, 3)


def test_a_trial_that_can_write_nothing_more_is_an_error_and_the_job_goes_on(
    dataset: Path, jobs: Path
) -> None:
    """A file may not grow beyond 1,500 bytes, as on a full disk: only the job's own fit."""

    class Limiter(Listener):
        def job_planned(self, n_total: int, n_kept: int) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1500, unlimited))

    before, unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    listener = Limiter()
    try:
        outcome = run(make_config(dataset, jobs, n_attempts=2), listener)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, unlimited))
    assert (outcome.counts.run, outcome.counts.errored) == (6, 6)
    stats = load_json(outcome.directory / "result.json")["stats"]
    assert list(stats["evals"]["nop__set"]["exception_stats"]) == ["OSError"]
    assert resume(outcome.directory).counts.scored == 6


def test_nothing_is_begun_when_there_are_no_tasks(tmp_path: Path, jobs: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(TaskError):
        run(make_config(tmp_path / "empty", jobs))
    assert not jobs.exists()


def test_an_agent_or_environment_that_is_not_there_is_refused_before_anything_is_written(
    dataset: Path, jobs: Path
) -> None:
    with pytest.raises(UnsupportedError, match="nobody"):
        run(make_config(dataset, jobs, agents=[AgentConfig(name="nobody")]))
    config = make_config(dataset, jobs)
    config.environment = EnvironmentConfig(type="modal")
    with pytest.raises(UnsupportedError, match="modal"):
        run(config)
    assert not jobs.exists()


def test_a_variable_that_the_host_lacks_is_named(dataset: Path, jobs: Path) -> None:
    nop = AgentConfig(name="nop", env={"A_TOKEN": "${A_TOKEN}", "B": "${B:-1}", "C": "${D}"})
    with pytest.raises(JobError) as raised:
        run(make_config(dataset, jobs, agents=[nop]), host={"B": "2"})
    assert str(raised.value) == (
        "A_TOKEN, D are not set among the host's variables, from which the job takes them: "
        "agents[0].env.A_TOKEN is ${A_TOKEN}, agents[0].env.C is ${D}. Type: export A_TOKEN=… D=…, "
        "or give values instead: --ae A_TOKEN=… --ae C=…"
    )


def test_a_job_name_is_a_name_and_not_a_path(dataset: Path, jobs: Path) -> None:
    with pytest.raises(RecordError, match=r"job name is '\.\./job'"):
        run(make_config(dataset, jobs, name="../job"))


def test_auto_takes_what_fits_the_hungriest_task(dataset: Path, jobs: Path) -> None:
    toml = 'schema_version = "1.3"\n[environment]\nmemory_mb = 1000000000\n'
    (dataset / "a" / "task.toml").write_text(toml, encoding="utf-8")
    outcome = run(make_config(dataset, jobs, n_concurrent=7), is_auto=True)
    assert load_json(outcome.directory / "config.json")["n_concurrent_trials"] == 1


def test_a_metric_without_a_value_ends_nothing_and_is_said(dataset: Path, jobs: Path) -> None:
    config = make_config(dataset, jobs)
    config.metrics = [MetricConfig(type="max"), MetricConfig(type="mean")]
    config.environment = EnvironmentConfig(
        import_path=config.environment.import_path, kwargs={"reward": "nan"}
    )
    outcome = run(config)
    evals = load_json(outcome.directory / "result.json")["stats"]["evals"]["nop__set"]
    assert evals["metrics"] == [{"max": None}, {"mean": None}]


def test_the_same_command_again_runs_nothing_and_changes_nothing(dataset: Path, jobs: Path) -> None:
    first = run(make_config(dataset, jobs))
    before = {path: path.read_bytes() for path in first.directory.glob("**/*.json")}
    listener = Listener()
    outcome = run(make_config(dataset, jobs, n_concurrent=9), listener)
    assert listener.planned == (3, 3)
    assert listener.started == []
    assert outcome.counts.kept == 3
    assert {path: path.read_bytes() for path in before} == before


def test_another_config_under_the_same_name_is_refused_by_its_keys(
    dataset: Path, jobs: Path
) -> None:
    run(make_config(dataset, jobs))
    config = make_config(dataset, jobs, n_attempts=2, agents=[AgentConfig(name="oracle")])
    with pytest.raises(JobError) as refused:
        run(config)
    assert "n_attempts is 1 there and 2 now" in str(refused.value)
    assert 'agents[0].name is "nop" there and "oracle" now' in str(refused.value)


def test_a_job_whose_directory_goes_away_stops_with_a_sentence(
    dataset: Path, jobs: Path, tmp_path: Path
) -> None:
    class Saboteur(Listener):
        def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
            (jobs / "job").rename(tmp_path / "elsewhere")

    with pytest.raises(
        JobError, match="jobs/job: the job's directory was removed while the job runs"
    ):
        run(make_config(dataset, jobs, n_concurrent=1), Saboteur())
    assert not (jobs / "job").exists()
    assert load_json(tmp_path / "elsewhere" / "result.json")["finished_at"] is None
    assert resume(tmp_path / "elsewhere").counts.scored == 3


def test_a_job_whose_result_cannot_be_written_stops_with_a_sentence(
    dataset: Path, jobs: Path
) -> None:
    class Saboteur(Listener):
        def trial_ended(self, trial: str, result: TrialResult, stats: JobStats) -> None:
            if (jobs / "job" / "result.json").is_file():
                (jobs / "job" / "result.json").unlink()
                (jobs / "job" / "result.json").mkdir()

    with pytest.raises(JobError, match=r"result\.json: cannot be written: not a plain file"):
        run(make_config(dataset, jobs, n_concurrent=1), Saboteur())
    (jobs / "job" / "result.json").rmdir()
    assert resume(jobs / "job").counts.scored == 3


SECOND = """
import sys
from pathlib import Path
from tests.job.jobs import make_config, run
from proctor.errors import JobError
try:
    run(make_config(Path(sys.argv[1]), Path(sys.argv[2])))
except JobError as error:
    print(error)
"""


def test_a_second_runner_of_one_job_is_refused(dataset: Path, jobs: Path, root: Path) -> None:
    answers: list[str] = []

    class Meddler(Listener):
        def trial_started(self, trial: str, task: str, attempt: int) -> None:
            if not answers:
                second = subprocess.run(
                    [sys.executable, "-c", SECOND, str(dataset), str(jobs)],
                    env={**os.environ, "PYTHONPATH": str(root)},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                answers.append(second.stdout)

    outcome = run(make_config(dataset, jobs), Meddler())
    assert f"process {os.getpid()} is running this job" in answers[0]
    assert outcome.counts.scored == 3


def test_another_job_of_the_name_that_was_run_meanwhile_is_not_gone_on_with(
    dataset: Path, jobs: Path
) -> None:
    other = make_config(dataset, jobs, n_attempts=2)

    def run_other(*_: object) -> None:
        # The first has looked by now, and found nothing there.
        thread = threading.Thread(target=run, args=(other,))
        thread.start()
        thread.join()

    with pytest.raises(JobError, match=r"a job of this name already.*n_attempts is 2 there"):
        run(make_config(dataset, jobs), approve=run_other)
    assert load_json(jobs / "job" / "result.json")["n_total_trials"] == 6


def test_one_task_by_its_path_is_counted_as_adhoc(tmp_path: Path, jobs: Path) -> None:
    config = make_config(tmp_path, jobs)
    task = make_task(tmp_path / "one")
    config = config.model_validate(
        {**config.model_dump(), "datasets": [], "tasks": [{"path": str(task)}]}
    )
    outcome = run(config)
    assert list(load_json(outcome.directory / "result.json")["stats"]["evals"]) == ["nop__adhoc"]
    assert resume(outcome.directory).counts.kept == 1
