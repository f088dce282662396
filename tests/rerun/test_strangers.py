"""`proctor audit --rerun` of what a stranger left: what is pretended or asked for is not given."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.programs import Proctor
from tests.rerun.jobs import (
    HONEST,
    Again,
    edit_json,
    edit_lines,
    load,
    only_trial,
    run_trial,
    scripted,
    trace_of,
    write_task,
)


@pytest.mark.parametrize(
    ("table", "values", "reason"),
    [
        ("environment", {"import_path": "their.module:Room"}, "it ran in their.module:Room, which"),
        (
            "environment",
            {"import_path": "proctor.environments.null:NullEnvironment"},
            "it ran in null, which runs nothing",
        ),
        (
            "environment",
            {"mounts": [{"type": "bind", "source": "/etc", "target": "/host"}]},
            "it used mounts of its machine",
        ),
        (
            "environment",
            {"env": {"HOME": "${HOME}"}},
            "the environment used the host variable HOME,",
        ),
        ("verifier", {"env": {"A_KEY": "****"}}, "the verifier used the host variable A_KEY,"),
        (
            "verifier",
            {"import_path": "their.module:Marks"},
            "it was scored by a custom class, their",
        ),
        ("verifier", {"disable": True}, "verification was disabled"),
    ],
)
def test_what_a_stranger_asks_of_this_machine_is_not_given(
    again: Again, job: Path, table: str, values: dict[str, Any], reason: str
) -> None:
    edit_json(only_trial(job) / "config.json", lambda config: config[table].update(values))
    found = again(job)
    assert (found["verdict"], found["directory"]) == ("not replayable", None)
    assert found["reason"].startswith(reason)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_config_with_a_number_that_json_lacks_is_the_trials_own_reason(
    again: Again, job: Path, number: float
) -> None:
    edit_json(
        only_trial(job) / "config.json",
        lambda config: config["agent"].update(kwargs={"temperature": number}),
    )
    found = again(job)
    assert (found["verdict"], found["directory"]) == ("not replayable", None)
    assert "config.json: expected value at line" in found["reason"]


def test_a_task_that_is_not_the_claimed_one_is_not_run(again: Again, job: Path) -> None:
    edit_json(only_trial(job) / "result.json", lambda result: result.update(task_name="harder"))
    found = again(job)
    assert (found["verdict"], found["directory"]) == ("not replayable", None)
    assert found["reason"] == "it claims the task 'harder', but ran 'task'"


def test_the_oracle_is_not_run_for_a_trial_that_claims_another_agent(
    again: Again, job: Path
) -> None:
    edit_json(only_trial(job) / "config.json", lambda config: config["agent"].update(name="oracle"))
    found = again(job)
    assert (found["verdict"], found["directory"]) == ("not replayable", None)
    assert found["reason"] == "its config.json names agent 'oracle', its result 'scripted'"


def test_trials_that_call_themselves_alike_are_each_run_again(
    proctor: Proctor, job: Path, tmp_path: Path
) -> None:
    worse = shutil.copytree(only_trial(job), job / "task__worse")
    trace = worse / "agent" / "trajectory.jsonl"
    edit_lines(trace, lambda line: "command" in line and line.update(command="true"))
    ran = proctor("audit", job, "--rerun", 2, "-o", tmp_path / "new", "--json")
    assert ran.code == 1
    told = {each["trial"]: each["same_rewards"] for each in json.loads(ran.out)["reruns"]}
    assert told == {only_trial_but(worse).name: True, "task__worse": False}


def only_trial_but(other: Path) -> Path:
    (found,) = (path.parent for path in other.parent.glob("*/result.json") if path.parent != other)
    return found


def test_a_directory_that_leads_elsewhere_is_not_read(
    again: Again, job: Path, tmp_path: Path
) -> None:
    agent = trace_of(job).parent
    agent.rename(tmp_path / "elsewhere")
    agent.symlink_to(tmp_path / "elsewhere")
    found = again(job)
    assert (found["verdict"], found["directory"]) == ("not replayable", None)
    assert found["reason"].endswith(
        "agent/trajectory.jsonl: not a regular file of the trial itself"
    )


def test_a_task_gets_variables_of_this_machine_only_when_told(
    again: Again, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", "here")
    task = write_task(tmp_path / "task")
    with (task / "task.toml").open("a") as file:
        file.write('env = { WORD = "${WORD}" }\n')
    job = run_trial(tmp_path, scripted(tmp_path, HONEST))
    found = again(job)
    assert (found["verdict"], found["code"]) == ("not replayable", 3)
    assert found["reason"] == "its task requires host variables: WORD; pass --yes to allow"
    assert again(job, "--yes")["verdict"] == "reproduced"


def test_an_agents_secrets_are_left_out_and_that_is_said(again: Again, job: Path) -> None:
    env = {"API_KEY": "sk-1****xyz", "WORD": "plain"}
    edit_json(only_trial(job) / "config.json", lambda config: config["agent"].update(env=env))
    found = again(job)
    assert found["verdict"] == "reproduced"
    assert found["notes"] == ["the agent's variables API_KEY are not recorded"]
    new = load(only_trial(Path(found["directory"])) / "config.json")
    assert new["agent"]["env"] == {"WORD": "plain"}
