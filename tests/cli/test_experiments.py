"""Which trials an experiment takes, and under which names they are listed and counted."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from proctor.harbor.configs import AgentConfig
from proctor.ledger.api import Ledger
from proctor.ledger.keys import find_key
from proctor.ledger.run_plan import (
    PlannedAgent,
    PlannedRetries,
    PlannedTask,
    RunPlan,
    digest_settings,
)
from tests.agents.chat.server import says, serving
from tests.cli.programs import Proctor
from tests.cli.test_run import TASKS, make_task
from tests.harbor.written import failed, write_result, write_trial

_UNVERIFIED = {"verifier_result": None, "exception_info": failed("RuntimeError")}
NOP = AgentConfig(name="nop").model_dump(mode="json")
NULL = ("-e", "null", "-q", "--job-name", "nightly")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every command is run from an empty directory, where the ledger is made."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_another_agent_under_the_same_name_is_refused_before_the_first_trial(
    proctor: Proctor, place: Path
) -> None:
    assert proctor("run", "-p", TASKS, "-a", "nop", *NULL).code == 0
    other = ("run", "-p", TASKS, "-a", "oracle", *NULL, "-o", "elsewhere")
    for words in (other, (*other, "--dry-run")):
        ran = proctor(*words)
        assert (ran.code, ran.out) == (2, "")
        assert "the experiment 'nightly' has trials of nop at 3 tasks" in ran.err
        assert "would add the agent oracle. Pass --experiment NAME" in ran.err
        assert "--extend-experiment" in ran.err
    assert not (place / "elsewhere").exists()
    assert proctor(*other, "--experiment", "own").code == 0


def test_an_experiment_that_is_extended_has_a_number_for_each_agent(proctor: Proctor) -> None:
    assert proctor("run", "-p", TASKS, "-a", "nop", *NULL).code == 0
    extend = ("-o", "elsewhere", "--extend-experiment")
    assert proctor("run", "-p", TASKS, "-a", "oracle", *NULL, *extend).code == 0
    assert proctor("resume", "elsewhere/nightly", "-q").code == 0
    claimed = proctor("ledger", "claim", "--experiment", "nightly", "-o", "claim.json")
    assert "nightly: 6 trials in 2 groups, each with its own score" in claimed.out
    assert "in 2 groups" in proctor("check", "claim.json").out
    gate = json.loads(proctor("gate", "nightly", "--min-mean", "-1", "--json").out)
    assert sorted(group["key"] for group in gate["runs"][0]["groups"]) == [
        "nop__binary",
        "oracle__binary",
    ]


def test_more_attempts_at_the_same_belong_and_other_tasks_do_not(
    proctor: Proctor, place: Path
) -> None:
    assert proctor("run", "-p", TASKS, "-a", "nop", *NULL).code == 0
    assert proctor("run", "-p", TASKS, "-a", "nop", *NULL, "-o", "again").code == 0
    make_task(place / "tasks" / "fresh")
    ran = proctor("run", "-p", place / "tasks", "-a", "nop", *NULL, "-o", "third")
    assert ran.code == 2
    assert "would add the task fresh of tasks" in ran.err


def test_a_sealed_plan_says_which_trials_belong(proctor: Proctor) -> None:
    assert proctor("ledger", "init").code == 0
    plan = RunPlan(
        dataset=None,
        tasks=tuple(PlannedTask(task=task.name, revision="1") for task in TASKS.iterdir()),
        agents=(PlannedAgent(agent="nop", model=None, settings=digest_settings({"agent": NOP})),),
        attempts=1,
        environment="null",
        retries=PlannedRetries(),
    )
    with Ledger.open(Path(os.environ["PROCTOR_LEDGER"]), key=find_key(None, os.environ)) as ledger:
        ledger.plan("nightly", msgspec.json.encode(plan), author="me")
    ran = proctor("run", "-p", TASKS, "-a", "oracle", *NULL)
    assert "'nightly' was planned (entry 1) with 3 trials; this job would add the" in ran.err
    assert proctor("run", "-p", TASKS, "-a", "nop", *NULL).code == 0
    ran = proctor("run", "-p", TASKS, "-a", "nop", *NULL, "-o", "again")
    assert ran.code == 2
    assert "this job would add attempt 2 at" in ran.err


def test_a_job_by_another_agent_is_not_sealed_by_hand_under_the_same_name(
    proctor: Proctor, place: Path
) -> None:
    assert proctor("run", "-p", TASKS, "-a", "nop", *NULL).code == 0
    other = ("-o", "elsewhere", "--no-ledger")
    assert proctor("run", "-p", TASKS, "-a", "oracle", *NULL, *other).code == 0
    trials = sorted(each.parent for each in place.glob("elsewhere/nightly/*/record.json"))
    ran = proctor("import", "harbor", "elsewhere/nightly")
    assert (ran.code, ran.out.splitlines()[0].split(": ")[1]) == (
        2,
        "0 imported, 0 already there, 3 refused; audited",
    )
    assert "has trials of nop at 3 tasks; this trial of another job is by oracle. Pass" in ran.out
    ran = proctor("ledger", "seal", trials[0])
    assert (ran.code, ran.out) == (2, "")
    assert "--extend-experiment" in ran.err
    assert proctor("ledger", "seal", trials[0], "--extend-experiment").code == 0
    # The job has begun to be sealed: the rest of it belongs.
    assert proctor("import", "harbor", "elsewhere/nightly").code == 0


def test_a_model_that_answers_under_another_name_does_not_change_the_dataset(
    proctor: Proctor,
) -> None:
    with serving(says("Done.")) as server:
        asked = ("-a", "chat", "-m", "maker/fake-1", "--ak", f"base_url={server.url}")
        assert proctor("run", "-p", TASKS, *asked, *NULL).code == 0
    assert "binary" in proctor("board").out.split()
    board = json.loads(proctor("board", "--dataset", "binary", "--json").out)
    listed = json.loads(proctor("ledger", "list", "--where", "dataset=binary", "--json").out)
    (row,) = [row for section in board["sections"] for row in section["rows"]]
    assert {each["trial"] for each in row["trials"]} == {
        f"nightly/{each['trial_id']}" for each in listed
    }
    assert {(each["dataset_id"], each["harness"]) for each in listed} == {("binary", "chat")}
    shown = proctor("show", f"nightly/{listed[0]['trial_id']}").out
    assert "gpt-4o-2024-08-06 (requested: maker/fake-1)" in shown


def test_a_report_lists_every_exception_with_trials(proctor: Proctor, place: Path) -> None:
    job = place / "nightly"
    write_trial(job, "a__1", exception_info=failed("AgentTimeoutError"))
    for number in range(4):
        write_trial(job, f"b__{number}", {}, **_UNVERIFIED)
    write_result(job, {}, n_total_trials=5)
    said = proctor("report", job, "--no-behaviour").out
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "errored, scored or not 5 of 5 trials" in lines
    assert "AgentTimeoutError 1: nightly/a__1" in lines
    assert "RuntimeError 4: nightly/b__0, nightly/b__1, nightly/b__2, …" in lines
    (group,) = json.loads(proctor("report", job, "--no-behaviour", "--json").out)["groups"]
    assert {name: len(names) for name, names in group["exceptions"].items()} == {
        "AgentTimeoutError": 1,
        "RuntimeError": 4,
    }
