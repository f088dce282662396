"""A directory of tasks: which of its children harbor takes, and why not the others."""

from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.task.dataset import load_dataset
from tests.task.trees import TASKS, make_task, write
from tests.unprivileged import unprivileged


def test_of_a_real_dataset_harbor_takes_two_of_five() -> None:
    dataset = load_dataset(TASKS / "partial")
    assert [task.name for task in dataset.tasks] == ["ok", "unknown-field"]
    assert {one.name: [fault.code for fault in one.faults] for one in dataset.skipped} == {
        "bad-toml": ["config-not-toml"],
        "bad-type": ["config-bad-value"],
        "no-tests": ["missing-test"],
    }
    assert dataset.name == "partial"


def test_files_are_no_tasks(tmp_path: Path) -> None:
    write(tmp_path, {"README.md": "", "task.txt": ""})
    make_task(tmp_path / "one")
    assert [one.name for one in load_dataset(tmp_path).candidates] == ["one"]


def test_a_directory_that_was_not_meant_to_be_a_task_is_no_problem(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", "half/instruction.md": ""})
    git, half = load_dataset(tmp_path).skipped
    assert [(fault.code, fault.is_problem) for fault in git.faults] == [("not-a-task", False)]
    assert [fault.code for fault in half.faults] == ["missing-config", "missing-environment"]


def test_a_link_to_a_task_is_taken(tmp_path: Path) -> None:
    make_task(tmp_path / "elsewhere")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "link").symlink_to("../elsewhere")
    (tmp_path / "set" / "dangling").symlink_to("nowhere")
    assert [task.name for task in load_dataset(tmp_path / "set").tasks] == ["link"]


def test_a_link_that_may_not_be_followed_is_listed(open_path: Path) -> None:
    write(open_path, {"shut/task/file": ""})
    (open_path / "set").mkdir()
    (open_path / "set" / "link").symlink_to("../shut/task")
    (open_path / "shut").chmod(0)
    with unprivileged():
        (found,) = load_dataset(open_path / "set").candidates
    assert [fault.code for fault in found.faults] == ["unreadable"]


def test_what_cannot_be_listed_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="gone: cannot be listed: No such file or directory"):
        load_dataset(tmp_path / "gone")
