"""The trials together: each its own, each of this job, each planned."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import audit_plan
from proctor.harbor.job import load_job
from tests.audit.directories import (
    COPIED,
    NAMES,
    Document,
    copy_job,
    edit_json,
    find_trial,
    make_job,
    read_json,
    write_json,
)


def kinds(job: Path) -> list[Kind]:
    return [finding.kind for finding in audit_plan(load_job(str(job)))]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_job(tmp_path / "job", {"a": ["1", "0"]})


@pytest.mark.parametrize("name", NAMES)
def test_an_untouched_plan_has_no_findings(name: str) -> None:
    assert kinds(COPIED / name) == []


def test_a_trial_is_found_again_by_name_and_by_id(job: Path) -> None:
    trial = find_trial(job, "a")
    edit_json(trial / "result.json", lambda found: found.update(id="7"))
    shutil.copytree(trial, job / "a__copy")
    assert kinds(job) == [Kind.DUPLICATE_TRIAL, Kind.DUPLICATE_TRIAL]


def test_trials_of_the_very_same_time_are_copies(job: Path) -> None:
    times = {"started_at": "2026-01-01T00:00:00.1Z", "finished_at": "2026-01-01T00:00:00.2Z"}
    for trial in job.glob("a__*"):
        edit_json(trial / "result.json", lambda found: found.update(times))
    assert kinds(job) == [Kind.COPIED_TRIAL]


def test_a_trial_of_another_job_is_named_with_both(job: Path) -> None:
    edit_json(job / "result.json", lambda result: result.update(id="ours"))
    for trial, stated in zip(sorted(job.glob("a__*")), ["ours", "theirs"], strict=True):
        document = read_json(trial / "result.json")
        write_json(trial / "result.json", {**document, "config": {"job_id": stated}})
    (finding,) = audit_plan(load_job(str(job)))
    assert finding.message == "a__job2 says it is of job theirs; this is job ours"


def test_without_a_result_no_trial_is_foreign(job: Path) -> None:
    edit_json(find_trial(job, "a") / "result.json", lambda found: found.update(job_id="x"))
    (job / "result.json").unlink()
    assert kinds(job) == []


def test_trials_beyond_the_plan_are_named(tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    edit_json(job / "lock.json", lambda lock: lock["trials"].pop())
    assert kinds(job) == [Kind.UNPLANNED_TRIAL, Kind.EDITED_COUNTER]


def test_a_plan_is_held_against_a_result_that_is_there(tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    (job / "result.json").unlink()
    edit_json(job / "lock.json", lambda lock: lock["trials"].pop())
    assert kinds(job) == [Kind.UNPLANNED_TRIAL]


def told(path: str, **task: object) -> dict[str, object]:
    return {"task": {"path": path, **task}, "agent": {"name": "oracle"}}


@pytest.mark.parametrize(
    "configs",
    [
        (told("one/a", source="one"), told("two/a", source="two")),
        (told("tasks/a", git_url="one"), told("tasks/a", git_url="two")),
    ],
)
def test_tasks_of_one_name_may_differ_where_they_come_from(
    job: Path, configs: Sequence[Document]
) -> None:
    for trial, config in zip(sorted(job.glob("a__*")), configs, strict=True):
        document = read_json(trial / "result.json")
        content = {"config": config, "task_checksum": trial.name}
        write_json(trial / "result.json", document | content)
    assert kinds(job) == []


@pytest.mark.parametrize("changes", [{"task_name": "b"}, {"task_checksum": "0" * 64}])
def test_one_task_has_one_name_and_one_content(job: Path, changes: Document) -> None:
    edit_json(job / "a__job2" / "result.json", lambda found: found.update(changes))
    (finding,) = audit_plan(load_job(str(job)))
    assert (finding.kind, finding.path) == (Kind.MIXED_TASK, f"{job}/a__job2")
    assert finding.message.endswith("is not the task here that a__job1 had")


def plan(job: Path, *paths: str) -> None:
    write_json(job / "lock.json", {"trials": [told(path) for path in paths]})


def test_a_plan_has_a_slot_for_every_attempt(job: Path) -> None:
    plan(job, "tasks/a", "tasks/a")
    assert kinds(job) == []
    plan(job, "tasks/a")
    assert kinds(job) == [Kind.UNPLANNED_TRIAL, Kind.EDITED_COUNTER, Kind.EDITED_COUNTER]


def test_slots_that_are_no_multiple_of_the_attempts_are_named(job: Path) -> None:
    plan(job, "tasks/a", "tasks/a", "tasks/a")
    finding, _ = audit_plan(load_job(str(job)))
    assert finding == Finding(
        Kind.EDITED_COUNTER,
        f"{job}/lock.json",
        "plans 3 trials of tasks/a; config.json asks for 2 attempts",
        "3",
        "2",
    )


def test_a_task_that_is_in_two_datasets_may_have_twice_the_attempts(job: Path) -> None:
    plan(job, *["tasks/a"] * 4)
    edit_json(job / "result.json", lambda result: result.update(n_total_trials=4))
    assert kinds(job) == []


@pytest.mark.parametrize("config", [None, {}, {"n_attempts": None}])
def test_without_a_number_of_attempts_any_plan_fits(job: Path, config: Document) -> None:
    (job / "config.json").unlink()
    if config is not None:
        write_json(job / "config.json", config)
    plan(job, *["tasks/a"] * 3)
    edit_json(job / "result.json", lambda result: result.update(n_total_trials=3))
    assert kinds(job) == []
