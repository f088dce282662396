"""Two runs, task by task, to the last bit."""

from pathlib import Path

import pytest

from proctor.audit.difference import Attempt, RunDifference, attempt_of, compare_runs
from proctor.harbor.job import Job, load_job
from proctor.harbor.stats import Trial
from proctor.reward.steps import Verdict
from tests.audit.directories import COPIED, NAMES, copy_job, edit_json, find_trial, make_job


def load(path: Path) -> Job:
    return load_job(str(path))


def compare(tmp_path: Path, left: str, right: str, epsilon: float = 0.0) -> list[RunDifference]:
    jobs = [make_job(tmp_path / at, {"a": [text]}) for at, text in (("l", left), ("r", right))]
    return compare_runs(load(jobs[0]), load(jobs[1]), epsilon)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_the_same_as_itself(name: str) -> None:
    job = load(COPIED / name)
    assert compare_runs(job, job) == []


@pytest.mark.parametrize(
    ("left", "right", "epsilon", "same"),
    [
        ("0.1", "0.1", 0.0, True),
        ("0.1", "0.10000000000000002", 0.0, False),
        ("0.1", "0.10000000000000002", 1e-9, True),
        ("0.5", "0.75", 0.25, True),
        ("0.5", "0.76", 0.25, False),
        ("nan", "nan", 0.0, True),
        ("nan", "0", 9.0, False),
        ("inf", "inf", 0.0, True),
        ("inf", "-inf", 9.0, False),
    ],
)
def test_rewards_are_the_same_or_within_epsilon(
    tmp_path: Path, left: str, right: str, epsilon: float, same: bool
) -> None:
    assert (compare(tmp_path, left, right, epsilon) == []) is same


def test_a_difference_names_task_attempt_and_both_values(tmp_path: Path) -> None:
    assert compare(tmp_path, "1", "0.5") == [
        RunDifference("a", 1, "reward", "1.0", "0.5"),
        RunDifference("a", 1, "resolved", "True", "False"),
    ]


def test_status_and_reason_are_compared(tmp_path: Path) -> None:
    left = copy_job("01-binary-oracle-k1", tmp_path)
    right = load(left)
    told = {"exception_info": {"exception_type": "AgentTimeoutError"}, "verifier_result": None}
    edit_json(find_trial(left, "pass-two") / "result.json", lambda found: found.update(told))
    assert compare_runs(load(left), right) == [
        RunDifference("pass-two", 1, "reward", "None", "1.0"),
        RunDifference("pass-two", 1, "status", "errored", "completed"),
        RunDifference("pass-two", 1, "reason", "harbor_agent_timeout_error", "None"),
        RunDifference("pass-two", 1, "resolved", "False", "True"),
    ]


def test_tasks_and_attempts_that_one_run_lacks_are_named(tmp_path: Path) -> None:
    left = make_job(tmp_path / "l", {"a": ["1", "1"], "b": ["1"]})
    right = make_job(tmp_path / "r", {"a": ["1"], "c": ["1"]})
    assert compare_runs(load(left), load(right)) == [
        RunDifference("a", 0, "attempts", "2", "1"),
        RunDifference("b", 0, "task", "present", "missing"),
        RunDifference("c", 0, "task", "missing", "present"),
    ]


def test_with_one_agent_each_their_names_do_not_matter() -> None:
    found = compare_runs(load(COPIED / "01-binary-oracle-k1"), load(COPIED / "02-binary-nop-k1"))
    assert {difference.task for difference in found} == {"pass-two", "pass-simple"}
    assert {difference.field for difference in found} == {"reward", "resolved"}


def test_with_several_agents_tasks_are_matched_within_their_groups() -> None:
    found = compare_runs(load(COPIED / "14-two-models"), load(COPIED / "01-binary-oracle-k1"))
    assert "oracle__binary pass-two" in {difference.task for difference in found}
    assert "scripted__model-x__binary pass-two" in {difference.task for difference in found}


@pytest.mark.parametrize(
    ("rewards", "reward", "resolved"),
    [
        ({"reward": 1, "speed": 0.5}, 1, True),
        ({"correct": 1.0}, 1.0, True),
        ({"correct": 1.0, "speed": 1.0}, None, False),
        ({"reward": 0.99}, 0.99, False),
        ({}, None, False),
        (None, None, False),
    ],
)
def test_the_reward_of_an_attempt_is_the_one_named_so_or_the_only_one(
    rewards: dict[str, float] | None, reward: float | None, resolved: bool
) -> None:
    trial = Trial("a__1", "a", "oracle", verdict=Verdict(rewards))
    assert attempt_of(trial) == Attempt(reward, "completed", None, resolved)


def test_an_attempt_that_was_not_verified_has_no_reward() -> None:
    found = attempt_of(Trial("a__1", "a", "oracle", exception="RuntimeError"))
    assert (found.reward, found.status, found.resolved) == (None, "errored", False)
    assert found.reason is not None


@pytest.mark.parametrize(("other", "same"), [(10**400, True), (10**400 + 1, False), (0.5, False)])
def test_rewards_too_large_for_a_float_are_compared(
    tmp_path: Path, other: float, same: bool
) -> None:
    jobs = [make_job(tmp_path / at, {"a": ["1"]}) for at in ("l", "r")]
    for job, value in zip(jobs, (10**400, other), strict=True):
        (find_trial(job, "a") / "verifier" / "reward.json").write_text(f'{{"reward": {value}}}')
    differences = compare_runs(load(jobs[0]), load(jobs[1]))
    assert ([found for found in differences if found.field == "reward"] == []) is same
