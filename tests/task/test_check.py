"""Everything worth saying about a task or a dataset."""

import os
from pathlib import Path

import pytest

from proctor.diagnostic import Diagnostic
from proctor.errors import TaskError
from proctor.task.check import check_dataset, check_task
from proctor.task.directory import load_task
from tests.task.trees import TASKS, make_steps, make_task, write


def said(path: Path) -> list[str]:
    return [("" if found.is_problem else "note: ") + str(found) for found in check_task(path)]


def test_nothing_is_said_of_a_good_task(tmp_path: Path) -> None:
    assert said(make_task(tmp_path / "one")) == []
    assert said(make_steps(tmp_path / "steps", "one", "two")) == []


def test_what_a_task_asks_of_the_machine_is_no_fault(tmp_path: Path) -> None:
    make_task(tmp_path, "[environment]\nos = 'windows'\ngpus = 8\nmemory_mb = 999999\n")
    (tmp_path / "tests/test.sh").rename(tmp_path / "tests/test.bat")
    (tmp_path / "solution/solve.sh").rename(tmp_path / "solution/solve.bat")
    assert said(tmp_path) == []


def test_faults_come_alone(tmp_path: Path) -> None:
    make_task(tmp_path, "frob = 1")
    (tmp_path / "instruction.md").unlink()
    assert said(tmp_path) == ["no instruction.md"]


def test_what_harbor_ignores_in_silence_is_noted(tmp_path: Path) -> None:
    make_task(tmp_path, "frob = 1", **{"tests/test.bat": "", "instruction.md": "# canary\n"})
    write(tmp_path, {"steps/one/instruction.md": "", "tests/a.pyc": "", "tests/b.pyc": ""})
    (tmp_path / "solution/solve.sh").unlink()
    (tmp_path / "tests/link").symlink_to("test.sh")
    os.mkfifo(tmp_path / "pipe")
    assert said(tmp_path) == [
        "note: task.toml: frob is not a key that harbor knows and is ignored",
        "note: instruction.md is empty",
        "note: no solution/solve.sh; the oracle agent would fail",
        "note: tests/test.bat is never run: the task is for linux",
        "note: steps/ is never used: task.toml names no steps",
        "note: the digest in lock.json does not cover tests/a.pyc and 1 more: "
        "ignored by .gitignore or harbor's default patterns",
        "note: dataset digest v1 does not cover pipe and 1 more: a link or special file",
    ]


def test_what_a_task_of_steps_never_uses_is_noted(tmp_path: Path) -> None:
    make_steps(tmp_path, "one", "two")
    write(tmp_path, {"instruction.md": "", "tests/test.sh": "", "steps/three/instruction.md": ""})
    write(tmp_path, {"steps/one/instruction.md": " "})
    (tmp_path / "steps/two/solution/solve.sh").unlink()
    assert said(tmp_path) == [
        "note: steps/one/instruction.md is empty",
        "note: no steps/two/solution/solve.sh; the oracle agent would fail",
        "note: instruction.md is never shown: each step has its own",
        "note: tests/test.sh is never run: each step has its own",
        "note: steps/three is never used: task.toml does not name it",
    ]


@pytest.mark.parametrize("name", ["..", "../../beside", "one/two", "/"])
def test_a_step_that_leads_elsewhere_is_a_problem(tmp_path: Path, name: str) -> None:
    task = tmp_path / "task"
    make_steps(task, "one/two")
    write(tmp_path, {"beside/instruction.md": "x", "task/instruction.md": "x"})
    write(task, {"tests/test.sh": "", "task.toml": f"[[steps]]\nname = '{name}'\n"})
    problems = [found for found in check_task(task) if found.is_problem]
    message = f"step {name!r} is not a directory directly below steps/"
    assert [found.message for found in problems] == [message]
    with pytest.raises(TaskError, match="not a directory directly below"):
        load_task(task)


def test_what_breaks_every_trial_is_a_problem(tmp_path: Path) -> None:
    make_task(tmp_path / "links", "frob = 1")
    (tmp_path / "links/tests/loop").symlink_to("..")
    make_task(tmp_path / "text").joinpath("instruction.md").write_bytes(b"\xff")
    make_task(tmp_path / "pipe").joinpath("instruction.md").unlink()
    os.mkfifo(tmp_path / "pipe" / "instruction.md")
    assert said(tmp_path / "links") == [
        f"tests: its links form a cycle through {tmp_path / 'links'}",
        "note: task.toml: frob is not a key that harbor knows and is ignored",
    ]
    assert said(tmp_path / "text") == ["instruction.md: not UTF-8: invalid start byte at offset 0"]
    assert said(tmp_path / "pipe") == ["instruction.md: cannot be read: is not a regular file"]


def test_an_environment_that_is_a_file_is_noted(tmp_path: Path) -> None:
    make_task(tmp_path)
    (tmp_path / "environment/Dockerfile").unlink()
    (tmp_path / "environment").rmdir()
    (tmp_path / "environment").write_text("")
    assert said(tmp_path) == ["note: environment is not a directory"]


def test_a_real_dataset_names_all_that_harbor_passes_over() -> None:
    check = check_dataset(TASKS / "partial")
    assert [task.name for task in check.tasks] == ["ok", "unknown-field"]
    assert [len(task.diagnostics) for task in check.tasks] == [0, 3]
    assert [one.name for one in check.skipped] == ["bad-toml", "bad-type", "no-tests"]
    assert all(one.diagnostics[0].is_problem for one in check.skipped)


@pytest.mark.parametrize("name", ["binary", "rewards", "errors", "multistep", "nan", "tamper"])
def test_the_other_real_datasets_have_no_problem(name: str) -> None:
    check = check_dataset(TASKS / name)
    found = [*check.diagnostics, *(each for task in check.tasks for each in task.diagnostics)]
    assert not any(each.is_problem for each in found)
    assert check.skipped == ()
    assert check.tasks


def test_a_name_that_costs_a_dataset_its_metrics_is_noted() -> None:
    message = "its name has '__' in it; harbor 0.13.1 then computes no metrics for it"
    expected = (Diagnostic("dataset-name", message, is_problem=False),)
    assert check_dataset(TASKS / "my__set").diagnostics == expected


def test_tasks_that_share_a_name_are_noted(tmp_path: Path) -> None:
    for name in ("a", "b"):
        make_task(tmp_path / name, "[task]\nname = 'acme/hello'\n")
    (note,) = check_dataset(tmp_path).diagnostics
    assert note.message == "2 tasks are named 'acme/hello'; harbor counts them as one in pass@k"
    assert not note.is_problem


def test_a_dataset_without_a_task_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, {"docs/page.md": ""})
    check = check_dataset(tmp_path)
    assert [found.message for found in check.diagnostics] == ["has no task that harbor accepts"]
    assert check.diagnostics[0].is_problem
