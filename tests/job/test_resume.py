"""Going on with a job: what is kept, what is run again, and that nothing is lost on the way."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.errors import JobError
from proctor.harbor.configs import AgentConfig, RetryConfig
from proctor.job.settings import Settings
from tests.job.jobs import (
    Listener,
    agent,
    load_json,
    make_config,
    make_tasks,
    resume,
    run,
    trial_dirs,
)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return make_tasks(tmp_path / "set", ["a", "b", "c"])


@pytest.fixture
def job(dataset: Path, tmp_path: Path) -> Path:
    """A finished job of three trials."""
    return run(make_config(dataset, tmp_path / "jobs")).directory


def test_a_torn_result_is_kept_as_an_attempt_and_its_slot_run_again(job: Path) -> None:
    torn = trial_dirs(job)[1]
    whole = (torn / "result.json").read_bytes()
    (torn / "result.json").write_bytes(whole[: len(whole) // 2])
    listener = Listener()
    outcome = resume(job, listener)
    assert listener.planned == (3, 2)
    assert listener.started == [("b", 2)]
    assert outcome.counts.scored == 3
    kept = (torn / "attempts" / "1" / "result.json").read_bytes()
    assert kept == whole[: len(whole) // 2]
    assert (torn / "attempts" / "1" / "verifier" / "reward.txt").exists()
    assert load_json(job / "result.json")["finished_at"] is not None


@pytest.mark.parametrize("text", ["", "{}", "[1]", "NaN", '{"trial_name": NaN}', "\x00\x00"])
def test_whatever_stands_for_a_result_the_slot_is_run_again(job: Path, text: str) -> None:
    broken = trial_dirs(job)[0]
    (broken / "result.json").write_text(text, encoding="utf-8")
    assert resume(job).counts.scored == 3
    kept = (broken / "attempts" / "1" / "result.json").read_text(encoding="utf-8")
    assert kept == text


def test_the_result_of_another_trial_does_not_count(job: Path) -> None:
    first, second, _ = trial_dirs(job)
    shutil.copyfile(first / "result.json", second / "result.json")
    listener = Listener()
    resume(job, listener)
    assert listener.started == [("b", 2)]


def test_a_reward_that_was_nan_is_kept_and_counted(dataset: Path, tmp_path: Path) -> None:
    config = make_config(dataset, tmp_path / "jobs")
    config.environment.kwargs["reward"] = "nan"
    job = run(config).directory
    (job / "result.json").unlink()
    outcome = resume(job)
    assert outcome.counts.kept == 3
    evals = load_json(job / "result.json")["stats"]["evals"]["nop__set"]
    assert evals["metrics"] == [{"mean": None}]


def test_errors_are_kept_unless_their_type_is_named(dataset: Path, tmp_path: Path) -> None:
    config = make_config(dataset, tmp_path / "jobs", agents=[agent("Flaky", fails=1)])
    job = run(config).directory
    assert resume(job).counts.errored == 3
    outcome = resume(job, also=frozenset({"ConnectionError"}))
    assert (outcome.counts.errored, outcome.counts.scored, outcome.counts.kept) == (0, 3, 0)
    for trial in trial_dirs(job):
        info = load_json(trial / "attempts" / "1" / "result.json")["exception_info"]
        assert info["exception_type"] == "ConnectionError"


def test_a_named_type_of_trials_that_a_changed_task_replaces_is_not_called_unknown(
    dataset: Path, tmp_path: Path
) -> None:
    config = make_config(dataset, tmp_path / "jobs", agents=[agent("Flaky", fails=9)])
    job = run(config).directory
    for task in dataset.iterdir():
        (task / "instruction.md").write_text("Otherwise.\n", encoding="utf-8")
    listener = Listener()
    resume(job, listener, also=frozenset({"ConnectionError", "OtherError"}))
    assert listener.sentences[-2:] == [
        "--also ConnectionError: the trials that ended in it are no longer planned; new ones take "
        "their place",
        "--also OtherError: no trial ended in it",
    ]


def test_a_retry_that_was_due_when_the_runner_was_killed_is_made_up_for(
    dataset: Path, tmp_path: Path
) -> None:
    retry = RetryConfig(max_retries=2, min_wait_sec=0)
    config = make_config(dataset, tmp_path / "jobs", agents=[agent("Flaky", fails=9)], retry=retry)
    job = run(config).directory
    assert resume(job).counts.kept == 3
    trial = trial_dirs(job)[0]
    shutil.rmtree(trial / "attempts" / "2")
    listener = Listener()
    resume(job, listener)
    assert listener.planned == (3, 2)
    assert listener.started == [("a", 3), ("a", 4), ("a", 5)]
    assert [len(list(path.glob("attempts/*"))) for path in trial_dirs(job)] == [4, 2, 2]


def test_strange_directories_are_left_alone(job: Path) -> None:
    (job / "my notes").mkdir()
    (job / "my notes" / "result.json").write_text("{}", encoding="utf-8")
    (job / "empty").mkdir()
    (job / "link").symlink_to(job)
    listener = Listener()
    outcome = resume(job, listener)
    assert outcome.counts.kept == 3
    assert (job / "my notes" / "result.json").read_text(encoding="utf-8") == "{}"
    assert (job / "empty").is_dir()
    assert any("my notes is not a trial of this job" in said for said in listener.sentences)


def test_a_changed_task_makes_a_new_slot_and_leaves_the_old_trial(job: Path, dataset: Path) -> None:
    old = trial_dirs(job)[1]
    before = {path: path.read_bytes() for path in old.glob("**/*") if path.is_file()}
    instruction = dataset / "b" / "instruction.md"
    first = instruction.read_text(encoding="utf-8")
    instruction.write_text("Otherwise.\n", encoding="utf-8")
    outcome = resume(job)
    assert outcome.unplanned == [old.name]
    assert (outcome.counts.planned, outcome.counts.kept, outcome.counts.scored) == (3, 2, 3)
    assert {path: path.read_bytes() for path in old.glob("**/*") if path.is_file()} == before
    new = trial_dirs(job)[1]
    assert new.name != old.name
    assert (job / "lock.1.json").exists()

    instruction.write_text(first, encoding="utf-8")
    outcome = resume(job)
    assert trial_dirs(job)[1] == old
    assert outcome.unplanned == [new.name]
    assert outcome.counts.kept == 3


def test_a_task_that_cannot_be_read_just_now_does_not_drop_out_of_the_numbers(
    job: Path, dataset: Path
) -> None:
    before = (job / "result.json").read_bytes()
    toml = dataset / "b" / "task.toml"
    whole = toml.read_bytes()
    toml.write_text("?", encoding="utf-8")
    with pytest.raises(JobError, match="a task of the job cannot be run any more"):
        resume(job)
    assert (job / "result.json").read_bytes() == before
    toml.write_bytes(whole)
    assert resume(job).counts.kept == 3


@pytest.mark.process
def test_another_revision_of_the_agent_makes_new_slots(dataset: Path, tmp_path: Path) -> None:
    version = tmp_path / "version"
    version.write_text("1\n", encoding="utf-8")
    config = make_config(dataset, tmp_path / "jobs")
    settings = Settings(agent_version_command=f"cat {version}")
    job = run(config, settings=settings).directory
    assert resume(job).counts.kept == 3
    version.write_text("2\n", encoding="utf-8")
    outcome = resume(job)
    assert (outcome.counts.kept, len(outcome.unplanned)) == (0, 3)


def test_it_goes_on_from_any_working_directory(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = run(make_config(Path("set"), Path("jobs"))).directory
    trials = trial_dirs(job)
    (trials[2] / "result.json").unlink()
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    outcome = resume(Path("../jobs/job"))
    assert (outcome.counts.kept, outcome.counts.scored) == (2, 3)
    assert Path.cwd() == other
    config = load_json(trials[2] / "config.json")
    assert config["task"]["path"] == "set/c"
    assert config["trials_dir"] == "jobs/job"


def test_a_job_that_was_moved_with_its_tasks_is_found_by_content(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    dataset.rename(first / "set")
    monkeypatch.chdir(first)
    run(make_config(Path("set"), Path("jobs")))
    monkeypatch.chdir(tmp_path)
    first.rename(tmp_path / "second")
    outcome = resume(tmp_path / "second" / "jobs" / "job")
    assert (outcome.counts.kept, outcome.unplanned) == (3, [])


def test_a_redacted_value_is_asked_for_and_never_used(dataset: Path, tmp_path: Path) -> None:
    secret = AgentConfig(name="nop", env={"MY_TOKEN": "a-very-secret-value", "PLAIN": "x"})
    job = run(make_config(dataset, tmp_path / "jobs", agents=[secret])).directory
    assert "a-very-secret-value" not in (job / "config.json").read_text(encoding="utf-8")
    with pytest.raises(JobError, match=r"the values of MY_TOKEN were left out"):
        resume(job, host={})
    assert resume(job, host={"MY_TOKEN": "another"}).counts.kept == 3
    assert resume(job, host={}, secrets={"MY_TOKEN": "another"}).counts.kept == 3


def test_what_is_no_job_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no such directory"):
        resume(tmp_path / "nothing")
    with pytest.raises(JobError, match=r"no config\.json in it"):
        resume(tmp_path)


def test_a_job_without_our_file_is_matched_by_what_its_trials_were_told(job: Path) -> None:
    """As a job that harbor began: it has no proctor.json."""
    names = [path.name for path in trial_dirs(job)]
    (job / "proctor.json").unlink()
    (job / names[1] / "result.json").unlink()
    outcome = resume(job)
    assert (outcome.counts.kept, outcome.counts.scored) == (2, 3)
    assert [path.name for path in trial_dirs(job)] == names
    assert (job / names[1] / "attempts" / "1").is_dir()


RECORDED = [
    "01-binary-oracle-k1",
    "05-rewards-oracle-k1",
    "06-errors-oracle-k1",
    "10-multistep-oracle-mounted",
    "12-nan-oracle",
    "13-single-task-adhoc",
    "14-two-models",
    "20-flaky-retry3",
    "22-disable-verification",
    "29-passk-20",
    "40-dataset-name-dunder",
]


@pytest.mark.parametrize("name", RECORDED)
def test_a_job_of_harbors_has_nothing_left_to_do(tmp_path: Path, root: Path, name: str) -> None:
    """Jobs that the real harbor ran elsewhere: every trial is found, by content."""
    data = root / "tests" / "data" / "harbor"
    job = tmp_path / "jobs" / name
    shutil.copytree(data / "jobs" / name, job)
    (tmp_path / "tasks").symlink_to(data / "tasks")
    before = load_json(job / "result.json")
    outcome = resume(job)
    assert outcome.counts.kept == outcome.counts.planned == before["n_total_trials"]
    assert outcome.unplanned == []
    after = load_json(job / "result.json")
    assert (after["id"], after["started_at"]) == (before["id"], before["started_at"])
    for key, group in before["stats"]["evals"].items():
        assert after["stats"]["evals"][key]["metrics"] == group["metrics"]
        assert after["stats"]["evals"][key]["pass_at_k"] == group["pass_at_k"]
    assert after["stats"]["n_retries"] == before["stats"]["n_retries"]


def test_a_lost_job_result_is_written_again(job: Path) -> None:
    first = load_json(job / "result.json")
    (job / "result.json").write_text('{"id": "', encoding="utf-8")
    resume(job)
    again = load_json(job / "result.json")
    assert (again["id"], again["started_at"]) == (first["id"], first["started_at"])
    assert again["stats"] == first["stats"]


class Runs:
    """Runners of one job, one after the other; after each nothing may have been lost."""

    def __init__(self, place: Path, root: Path) -> None:
        make_tasks(place / "set", ["a", "b"])
        self.job = place / "jobs" / "job"
        self._words = ["-m", "tests.job.runner", str(place), "run", "Flaky", "fails=1"]
        self._root = root
        self._planned: list[str] = []
        self._attempts: dict[str, int] = {}

    def run(self, die_at: str = "", kill_after: float | None = None) -> int:
        """Let one run, and look at what it left; its exit code."""
        with subprocess.Popen(
            [sys.executable, *self._words],
            cwd=self._root,
            env={**os.environ, "PYTHONPATH": str(self._root), "DIE_AT": die_at},
            start_new_session=True,
        ) as process:
            if kill_after is not None:
                wait_for_job(self.job, process)
                time.sleep(kill_after)
                process.send_signal(signal.SIGKILL)
            code = process.wait(60)
        if (self.job / "proctor.json").exists():
            self._check_nothing_lost()
        return code

    def _check_nothing_lost(self) -> None:
        names = [path.name for path in trial_dirs(self.job)]
        self._planned = self._planned or names
        assert names == self._planned
        for trial in trial_dirs(self.job):
            now = len(list(trial.glob("attempts/[0-9]*")))
            assert now >= self._attempts.get(trial.name, 0)
            self._attempts[trial.name] = now

    def check_whole(self) -> None:
        """The job is what it would have been without a kill."""
        written = load_json(self.job / "result.json")
        assert written["finished_at"] is not None
        assert written["stats"]["n_completed_trials"] == 6
        assert written["stats"]["evals"]["flaky__set"]["metrics"] == [{"mean": 1.0}]
        directories = {path.name for path in self.job.iterdir() if path.is_dir()}
        assert directories == set(self._planned)
        for trial in trial_dirs(self.job):
            assert load_json(trial / "result.json")["exception_info"] is None
            assert not list(trial.glob("attempts/.*"))
            for kept in trial.glob("attempts/*"):
                record = kept / "record.json"
                if record.exists():
                    assert load_json(record)["trial_id"] == f"{trial.name}.attempt-{kept.name}"


def kill_and_resume(runs: Runs, rng: random.Random, n_kills: int) -> None:
    for _ in range(n_kills):
        assert runs.run(kill_after=rng.random() * 0.15) in (0, -signal.SIGKILL)
    assert runs.run() == 0
    runs.check_whole()


def wait_for_job(job: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the runner has got as far as the job's own directory."""
    end = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end:
        holder = job / "runner.lock"
        if holder.exists() and holder.read_text(encoding="ascii").strip() == str(process.pid):
            return
        time.sleep(0.002)


def test_a_runner_may_be_killed_at_every_boundary(tmp_path: Path, root: Path) -> None:
    runs = Runs(tmp_path, root)
    boundaries = ("planned", "started", "setup", "agent-setup", "agent", "ended", "retried")
    for boundary in (*boundaries, "collect", "verify"):
        assert runs.run(die_at=boundary) == -signal.SIGKILL, boundary
    assert runs.run() == 0
    runs.check_whole()


def test_a_runner_may_be_killed_anywhere(tmp_path: Path, root: Path) -> None:
    kill_and_resume(Runs(tmp_path, root), random.Random(1), n_kills=4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_a_runner_may_be_killed_anywhere_200_times(tmp_path: Path, root: Path, seed: int) -> None:
    kill_and_resume(Runs(tmp_path, root), random.Random(1000 + seed), n_kills=10)
