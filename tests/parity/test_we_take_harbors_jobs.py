"""A job directory of the real harbor in the hands of proctor."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.programs import Ran
from tests.parity.beside import proctor
from tests.parity.facts import DATA, JOBS, load_groups
from tests.parity.theirs import Harbor
from tests.parity.trees import load_tree

FINISHED = [
    "04-binary-scripted-k5",
    "06-errors-oracle-k1",
    "10-multistep-oracle-mounted",
    "13-single-task-adhoc",
    "20-flaky-retry3",
    "40-dataset-name-dunder",
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where those jobs were run: their tasks are named from here."""
    (tmp_path / "tasks").symlink_to(DATA / "tasks")
    return tmp_path


def resume(name: str, place: Path) -> Ran:
    """Go on with a copy of a job."""
    shutil.copytree(JOBS / name, place / "jobs" / name)
    return proctor("resume", f"jobs/{name}", "-q", cwd=place)


@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_job_has_nothing_to_do_and_loses_nothing(name: str, place: Path) -> None:
    ran = resume(name, place)
    before, after = load_tree(JOBS / name), load_tree(place / "jobs" / name)
    assert ran.code in (0, 3), ran.err
    assert f"kept from before: {n_trials(name)}" in ran.out
    of_the_job = {"job.log", "lock.json", "result.json"}
    assert {path for path in before if after.get(path) != before[path]} <= of_the_job
    assert after.keys() - before.keys() <= {"proctor.json", "runner.lock", "lock.1.json"}
    # What harbor pinned is still there, whatever we pinned besides.
    assert before["lock.json"] in (after["lock.json"], after.get("lock.1.json"))
    assert load_groups(JOBS / name) == load_groups(place / "jobs" / name)


def test_a_job_with_a_reward_of_nan_is_gone_on_with_where_harbor_cannot(
    harbor: Harbor, place: Path
) -> None:
    name = "12-nan-oracle"
    assert resume(name, place).code == 0
    told = json.loads((place / "jobs" / name / "result.json").read_text())["stats"]["evals"]
    assert told["oracle__nan"]["metrics"] == [{"mean": None}]
    theirs = harbor("job", "resume", "-p", JOBS / name, cwd=place)
    assert theirs.code == 1
    assert "verifier_result.rewards" in theirs.said


def n_trials(name: str) -> int:
    total: int = json.loads((JOBS / name / "result.json").read_text())["n_total_trials"]
    return total


@pytest.mark.parametrize("name", ["31-killed-before-resume", "30-cancelled-before-resume"])
def test_a_job_whose_tasks_are_gone_is_a_sentence_and_stays_as_it_is(
    name: str, place: Path
) -> None:
    ran = resume(name, place)
    assert ran.code == 2
    assert ran.err == (
        "proctor: tasks/slow: no such directory; expected a task, or a directory of tasks\n"
    )
    assert load_tree(JOBS / name) == load_tree(place / "jobs" / name)
