"""Attempts by equal commands, and by the commands of the task's own solution."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.audit.commands import audit_commands
from proctor.audit.findings import Finding, Kind
from proctor.harbor.job import load_job
from tests.audit.directories import edit_config, make_job, write_json

LONG = [
    "ls -la /app /app/src",
    "grep -rn needle /app/src --include=*.txt",
    "sed -i s/needle/pin/ /app/src/a.txt",
]
SOLUTION = (
    "#!/bin/bash\ncd /app\ngrep -rn needle . > found.txt\nsed -i 's/needle/pin/' a.txt b.txt\n\
python3 make.py --from found.txt --to out.json\n"
)


@pytest.fixture
def trials(tmp_path: Path) -> list[Path]:
    job = make_job(tmp_path / "job", {"a": ["1", "0"], "b": ["1"]})
    found = [job / name for name in ("a__job1", "a__job2", "b__job1")]
    for trial in found:
        set_agent(trial, name=None, import_path="some.module:Agent")
    return found


def audit(trials: list[Path]) -> list[Finding]:
    return list(audit_commands(load_job(str(trials[0].parent))))


def leave_atif(trial: Path, commands: list[str]) -> None:
    (trial / "agent").mkdir(exist_ok=True)
    calls = [{"function_name": "bash", "arguments": {"command": each}} for each in commands]
    write_json(trial / "agent" / "trajectory.json", {"steps": [{"tool_calls": calls}]})


def leave_trajectory(trial: Path, commands: list[str]) -> None:
    (trial / "agent").mkdir(exist_ok=True)
    lines = [
        {"role": "tool_call", "step": at, "tool_name": "bash", "command": command}
        for at, command in enumerate(commands, 1)
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (trial / "agent" / "trajectory.jsonl").write_text(text)


def set_agent(trial: Path, **agent: Any) -> None:
    edit_config(trial, lambda config: config["agent"].update(agent))


def put_task(trial: Path, task: Path) -> None:
    for name in ("environment", "solution"):
        (task / name).mkdir(parents=True, exist_ok=True)
    (task / "task.toml").write_text("")
    (task / "instruction.md").write_text("Do it.\n")
    (task / "solution" / "solve.sh").write_text(SOLUTION)
    edit_config(trial, lambda config: config["task"].update(path=str(task)))


def test_equal_commands_are_a_note_whatever_kind_of_trace_tells(trials: list[Path]) -> None:
    leave_atif(trials[0], LONG)
    leave_trajectory(trials[1], LONG)
    (finding,) = audit(trials)
    assert finding.kind is Kind.IDENTICAL_COMMANDS
    assert finding.path == f"{trials[1]}/agent"
    assert finding.message == "attempts at a by equal commands: a__job1, a__job2"


def test_equal_commands_at_different_tasks_are_told_too(trials: list[Path]) -> None:
    leave_trajectory(trials[0], LONG)
    leave_trajectory(trials[2], LONG)
    (finding,) = audit(trials)
    assert finding.message == "attempts at 2 tasks by equal commands: a__job1, b__job1"


def test_other_commands_or_few_of_them_are_nothing_to_tell(trials: list[Path]) -> None:
    for trial in trials[:2]:
        leave_trajectory(trial, ["ls", "cat task.txt", "echo 42 > answer.txt"])
    leave_trajectory(trials[2], LONG)
    assert audit(trials) == []


@pytest.mark.parametrize("name", ["oracle", "nop", "scripted", "replay", "command"])
def test_agents_that_always_do_the_same_are_not_told_of(trials: list[Path], name: str) -> None:
    for trial in trials[:2]:
        leave_trajectory(trial, LONG)
        set_agent(trial, name=name, import_path=None, model_name=None)
    assert audit(trials) == []


def test_a_command_with_a_model_or_a_class_of_that_name_is(trials: list[Path]) -> None:
    for trial in trials[:2]:
        leave_trajectory(trial, LONG)
    for agent in (
        {"name": "command", "import_path": None, "model_name": "some/model"},
        {"name": "scripted", "import_path": "a.b:C", "model_name": None},
    ):
        for trial in trials[:2]:
            set_agent(trial, **agent)
        assert [finding.kind for finding in audit(trials)] == [Kind.IDENTICAL_COMMANDS]


def test_the_commands_of_the_solution_are_a_note(trials: list[Path], tmp_path: Path) -> None:
    leave_trajectory(trials[0], ["ls", *SOLUTION.splitlines()])
    leave_trajectory(trials[1], LONG)
    for trial in trials[:2]:
        set_agent(trial, name="command", import_path=None)
        put_task(trial, tmp_path / "task")
    (finding,) = audit(trials)
    assert finding.kind is Kind.COMMANDS_LIKE_SOLUTION
    assert finding.message == (
        "a__job1: its commands contain 4 of 4 parts, 100.0% of the text of the task's own solution"
    )
    set_agent(trials[0], name="oracle")
    assert audit(trials) == []


def test_a_task_that_is_gone_or_a_trace_that_is_torn_is_not_judged(trials: list[Path]) -> None:
    leave_trajectory(trials[0], SOLUTION.splitlines())
    (trials[1] / "agent").mkdir()
    (trials[1] / "agent" / "trajectory.json").write_text("{")
    (trials[1] / "agent" / "trajectory.jsonl").symlink_to(trials[0])
    assert audit(trials) == []
