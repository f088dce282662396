"""A job directory of proctor in the hands of the real harbor: viewer, resume, models."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.harbor.lock import JobLock, render_lock
from tests.lazy_imports import LazyModule
from tests.parity.beside import run_ours
from tests.parity.facts import TASKS, load_groups
from tests.parity.shared import made_once
from tests.parity.theirs import Harbor
from tests.parity.trees import load_tree
from tests.parity.viewer import Viewer, viewing

JOB_CONFIG = LazyModule("harbor.models.job.config")
JOB_LOCK = LazyModule("harbor.models.job.lock")
JOB_RESULT = LazyModule("harbor.models.job.result")

RECORDED = Path(__file__).resolve().parent.parent / "data" / "harbor" / "jobs"
N_TRIALS = 24
N_KEPT = 8
CONFIG = f"""
n_attempts: 2
retry: {{max_retries: 1, min_wait_sec: 0}}
agents:
  - name: oracle
  - name: nop
  - import_path: tests.parity.their_agents:Flaky
    model_name: acme/model-x
    kwargs: {{n_fail: 1}}
datasets:
  - path: {TASKS / "binary"}
    task_names: [oracle-wrong, pass-simple]
  - path: {TASKS / "multistep"}
    task_names: [ms-mean]
  - path: {TASKS / "errors"}
    task_names: [no-solution]
"""
"""Right and wrong answers, several steps, an errored trial, and attempts that were kept; each
verified again, so that all files that only proctor writes are there."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished job of proctor; not to be changed."""

    def make(place: Path) -> None:
        config = place / "job.yaml"
        config.write_text(CONFIG, encoding="utf-8")
        # By a relative path, so that a copy is as good as the job.
        run_ours("-c", config, "--verify-again", 1, jobs="jobs", code=3, cwd=place)

    return made_once(tmp_path_factory, "taken", make) / "jobs" / "job"


def trials(job: Path) -> dict[str, Any]:
    """The result of every trial, by its name."""
    found = {path.parent.name: json.loads(path.read_text()) for path in job.glob("*/result.json")}
    assert len(found) == N_TRIALS
    return found


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*/lock.json")), ids=lambda p: p.parent.name)
def test_the_plan_of_a_large_job_is_the_same_plan_to_harbor(path: Path) -> None:
    read = JOB_LOCK.JobLock.model_validate_json
    text = path.read_text()
    compact = render_lock(JobLock.model_validate_json(text), many=0)
    assert len(compact) < len(text) / 2
    assert read(compact) == read(text)


def test_the_viewer_shows_the_job_and_every_trial(job: Path, tmp_path: Path) -> None:
    log = tmp_path / "viewer.txt"
    with viewing(job.parent, log) as viewer:
        check_job(viewer, job)
        for name, result in trials(job).items():
            check_trial(viewer, job / name, result)
    assert "Failed to parse" not in log.read_text()


def check_job(viewer: Viewer, job: Path) -> None:
    """The job as a whole: its line in the list, its figures, its config, its tasks."""
    result = json.loads((job / "result.json").read_text())
    (line,) = viewer("jobs")["items"]
    assert (line["name"], line["n_total_trials"]) == ("job", N_TRIALS)
    assert line["n_completed_trials"] == N_TRIALS
    assert line["n_errored_trials"] == result["stats"]["n_errored_trials"] > 0
    assert line["evals"].keys() == result["stats"]["evals"].keys()
    assert viewer("jobs/job")["stats"] == result["stats"]
    assert viewer("jobs/job/config")["n_attempts"] == 2
    assert sum(task["n_trials"] for task in viewer("jobs/job/tasks")["items"]) == N_TRIALS
    assert len(viewer("compare", job="job")["tasks"]) == 4
    listed = viewer("jobs/job/trials", page_size=100)["items"]
    shown = {line["name"]: (line["reward"], line["error_type"]) for line in listed}
    assert shown == {name: score(result) for name, result in trials(job).items()}


def score(result: Any) -> tuple[float | None, str | None]:
    """What the viewer shows of a result."""
    rewards = (result["verifier_result"] or {}).get("rewards") or {}
    error = result["exception_info"]
    return rewards.get("reward"), error and error["exception_type"]


def check_trial(viewer: Viewer, trial: Path, result: Any) -> None:
    """One trial: its result, its files, and what agent and verifier left, step by step."""
    place = f"jobs/job/trials/{trial.name}"
    shown = viewer(place)
    assert shown["verifier_result"] == result["verifier_result"]
    listed = {file["path"] for file in viewer(f"{place}/files") if not file["is_dir"]}
    assert listed == {name for name in load_tree(trial) if not name.endswith("/")}
    assert {"config.json", "result.json", "record.json", "trial.log"} <= listed
    assert ("verify-again.json" in listed) == (result["verifier_result"] is not None)
    for step in result["step_results"] or [None]:
        scope = {"step": step["step_name"]} if step else {}
        directory = trial / "steps" / step["step_name"] if step else trial
        output = viewer(f"{place}/verifier-output", **scope)["stdout"]
        written = directory / "verifier" / "test-stdout.txt"
        assert output == (written.read_text() if written.exists() else None)
        collected = {name for name in load_tree(directory / "artifacts") if name[-1] != "/"}
        artifacts = {file["path"] for file in viewer(f"{place}/artifacts", **scope)["files"]}
        assert artifacts == collected - {"manifest.json"}
        assert viewer(f"{place}/agent-logs", **scope)["summary"] is None
        trajectory = viewer(f"{place}/trajectory", **scope)
        assert (trajectory is not None) == (directory / "agent" / "trajectory.json").exists()


def test_resume_finds_nothing_to_do_and_leaves_the_trials_alone(
    harbor: Harbor, job: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "jobs" / "job"
    shutil.copytree(job, copy)
    ran = harbor("job", "resume", "-p", "jobs/job", cwd=tmp_path)
    assert ran.code == 0, ran.said
    assert f"{N_TRIALS}/{N_TRIALS}" in ran.said
    before, after = load_tree(job), load_tree(copy)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    # harbor writes a set in an order that changes with each of its processes, and may be ours.
    assert {"result.json"} <= changed <= {"config.json", "lock.json", "result.json"}
    assert load_groups(copy) == load_groups(job)
    assert len([name for name in after if "/attempts/1/result.json" in name]) == N_KEPT


@pytest.mark.parametrize(("name", "model"), [("config", "TrialConfig"), ("result", "TrialResult")])
def test_every_file_of_a_trial_is_harbors_to_the_byte(job: Path, name: str, model: str) -> None:
    files = [*job.glob(f"*/{name}.json"), *job.glob(f"*/attempts/*/{name}.json")]
    assert len(files) == N_TRIALS + N_KEPT
    theirs = getattr(LazyModule(f"harbor.models.trial.{name}"), model)
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert theirs.model_validate_json(text).model_dump_json(indent=4) == text, path


def test_the_result_of_the_job_is_harbors_to_the_byte(job: Path) -> None:
    text = (job / "result.json").read_text(encoding="utf-8")
    result = JOB_RESULT.JobResult.model_validate_json(text)
    assert result.model_dump_json(indent=4, exclude={"trial_results"}) == text


def test_config_and_lock_are_harbors_but_for_the_order_of_a_set(job: Path) -> None:
    text = (job / "config.json").read_text(encoding="utf-8")
    again = JOB_CONFIG.JobConfig.model_validate_json(text).model_dump_json(indent=4)
    assert in_order(json.loads(again)) == in_order(json.loads(text))
    assert sorted(again) == sorted(text)
    text = (job / "lock.json").read_text(encoding="utf-8")
    again = JOB_LOCK.JobLock.model_validate_json(text).model_dump_json(indent=4, exclude_none=True)
    assert in_order(json.loads(again)) == in_order(json.loads(text))
    assert sorted(again) == sorted(text)


def in_order(document: Any) -> Any:
    """The document with the set of retry.exclude_exceptions sorted."""
    document["retry"]["exclude_exceptions"].sort()
    return document
