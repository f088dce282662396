"""Tasks and datasets: whatever harbor passes over in silence is named, with the reason."""

from pathlib import Path

import pytest

from proctor.audit.checks.tasks import check_dataset_directory, check_task_directory
from proctor.errors import TaskError
from tests.conformance.theirs import harbor_module
from tests.task.trees import TASKS, make_task

# Harbor warns of old keys.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def harbor_takes(path: Path) -> bool:
    return bool(harbor_module("harbor.models.task.task").Task.is_valid_dir(path))


def make_broken(root: Path) -> None:
    """A dataset with one good task and one of each kind that harbor passes over."""
    make_task(root / "good")
    make_task(root / "bad-toml", config="version = [")
    make_task(root / "bad-type", config='[agent]\ntimeout_sec = "soon"\n')
    (make_task(root / "no-tests") / "tests" / "test.sh").unlink()
    (make_task(root / "no-instruction") / "instruction.md").unlink()
    environment = make_task(root / "no-environment") / "environment"
    (environment / "Dockerfile").unlink()
    environment.rmdir()
    (make_task(root / "no-config") / "task.toml").unlink()


def test_each_task_that_harbor_passes_over_is_named_with_its_reason(tmp_path: Path) -> None:
    make_broken(tmp_path)
    found = check_dataset_directory(str(tmp_path))
    assert found.summary == "harbor accepts 1 of 7 directories"
    named = {
        each.message.split(": skipped: ")[0]: (each.code, each.message)
        for each in found.diagnostics
        if each.is_problem
    }
    assert {name: code for name, (code, _) in named.items()} == {
        "bad-toml": "config-not-toml",
        "bad-type": "config-bad-value",
        "no-tests": "missing-test",
        "no-instruction": "missing-instruction",
        "no-environment": "missing-environment",
        "no-config": "missing-config",
    }
    assert "agent.timeout_sec is 'soon'" in named["bad-type"][1]
    assert "tests/test.sh" in named["no-tests"][1]
    assert "instruction.md" in named["no-instruction"][1]
    children = [child for child in tmp_path.iterdir() if child.is_dir()]
    assert {child.name for child in children if not harbor_takes(child)} == set(named)


@pytest.mark.parametrize("name", sorted(path.name for path in TASKS.iterdir() if path.is_dir()))
def test_of_every_real_dataset_those_are_named_that_harbor_passes_over(name: str) -> None:
    found = check_dataset_directory(str(TASKS / name))
    messages = [each.message for each in found.diagnostics if each.is_problem]
    children = [child for child in (TASKS / name).iterdir() if child.is_dir()]
    left_out = {child.name for child in children if not harbor_takes(child)}
    assert {message.split(": skipped: ")[0] for message in messages} == left_out
    taken = len(children) - len(left_out)
    assert found.summary == f"harbor accepts {taken} of {len(children)} directories"


def test_a_large_dataset_has_each_task_named(tmp_path: Path) -> None:
    for number in range(50):
        make_task(tmp_path / f"task-{number:02}", config="version = [")
    found = check_dataset_directory(str(tmp_path))
    names = [each.message.split(":")[0] for each in found.diagnostics if each.line is None]
    assert [name for name in names if name.startswith("task-")] == [
        f"task-{number:02}" for number in range(50)
    ]
    assert found.more == {}


def test_an_empty_dataset_is_a_problem(tmp_path: Path) -> None:
    found = check_dataset_directory(str(tmp_path))
    assert [each.code for each in found.diagnostics] == ["no-task"]
    assert not found.is_sound


def test_a_dataset_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TaskError, match="cannot be listed: Not a directory"):
        check_dataset_directory(str(tmp_path / "file"))


def test_a_good_task_is_pinned(tmp_path: Path) -> None:
    found = check_task_directory(str(make_task(tmp_path / "good")))
    assert found.is_sound
    algorithm, digest = found.summary.split()
    assert (algorithm, len(digest)) == ("task_checksum", 64)


def test_a_bad_task_has_its_reason(tmp_path: Path) -> None:
    path = make_task(tmp_path / "bad", config="version = [")
    found = check_task_directory(str(path))
    assert found.summary == "harbor would reject it"
    assert [each.code for each in found.diagnostics] == ["config-not-toml"]
