"""Links by which a task would give the agent files of this machine."""

from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.job.planned import Resolved
from tests.job.small_tasks import (
    job_config,
    resolve,
    resolve_path,
    write_dataset,
    write_task,
)


def names(resolved: Resolved) -> list[str]:
    return [task.name for task in resolved.tasks]


LED_OUT = (
    *("instruction.md", "environment", "environment/Dockerfile", "tests", "solution"),
    *("steps/s", "steps/s/instruction.md", "steps/s/tests", "steps/s/workdir"),
)


@pytest.mark.parametrize("name", LED_OUT)
def test_a_task_that_leads_the_runner_to_other_files_of_this_machine_is_refused(
    tmp_path: Path, name: str
) -> None:
    toml = '[[steps]]\nname = "s"\n' if name.startswith("steps") else ""
    task = write_task(tmp_path / "set" / "a", toml)
    if toml:
        write_task(task / "steps" / "s")
    write_task(tmp_path / "set" / "b")
    place = task / name
    place.parent.mkdir(exist_ok=True)
    move_away(place, tmp_path / "elsewhere")
    for config in (
        job_config(datasets=[{"path": tmp_path / "set"}]),
        job_config(tasks=[{"path": task}, {"path": tmp_path / "set" / "b"}]),
    ):
        resolved = resolve(config)
        assert names(resolved) == ["b"]
        (refused,) = resolved.refused
        assert refused.reason.startswith(f"{name} is a link that leads out of the ")
        assert f"to {tmp_path / 'elsewhere'}; it could give the agent files" in refused.reason


def move_away(place: Path, target: Path) -> None:
    """What is at a place lies elsewhere now, and a link leads there."""
    if place.exists():
        place.rename(target)
    else:
        target.mkdir()
    place.symlink_to(target)


def test_tasks_of_one_dataset_may_share_files_by_links(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path / "set", "a")
    (dataset / "shared").mkdir()
    move_away(dataset / "a" / "instruction.md", dataset / "shared" / "instruction.md")
    move_away(dataset / "a" / "tests", dataset / "shared" / "tests")
    assert names(resolve_path(dataset)) == ["a"]
    with pytest.raises(TaskError, match="or pass the whole dataset with -p"):
        resolve(job_config(tasks=[{"path": dataset / "a"}]))


def test_a_task_may_be_a_link_itself_and_hold_links_for_the_inside(tmp_path: Path) -> None:
    task = write_task(tmp_path / "there" / "a")
    (task / "tests" / "users").symlink_to("/etc/passwd")
    (task / "environment" / "python").symlink_to("/usr/bin/env")
    (task / "workdir").symlink_to("/no/such/place")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a").symlink_to(task)
    assert names(resolve_path(tmp_path / "set")) == ["a"]


def test_an_older_task_is_not_copied_with_files_of_this_machine(tmp_path: Path) -> None:
    task = tmp_path / "set" / "old"
    (task / "data").mkdir(parents=True)
    (task / "task.yaml").write_text("instruction: Do it.\n")
    (task / "Dockerfile").write_text("FROM debian:12\nCOPY data /data\n")
    (task / "run-tests.sh").write_text("true\n")
    (tmp_path / "key").write_text("secret")
    (task / "data" / "key").symlink_to(tmp_path / "key")
    with pytest.raises(TaskError, match="data/key is a link that leads out of the dataset"):
        resolve_path(tmp_path / "set")
