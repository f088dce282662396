"""`proctor task shell -e docker`: a shell in the container of a task."""

from pathlib import Path

import pytest

from tests.cli.programs import run_child
from tests.cli.test_task_shell import on_screen
from tests.environments.docker.engine import Engine
from tests.task.trees import make_task


@pytest.fixture
def task(tmp_path: Path) -> Path:
    dockerfile = {"environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n"}
    config = '[environment]\nnetwork_mode = "no-network"\n'
    return make_task(tmp_path / "task", config, **dockerfile)


def test_commands_from_a_pipe_run_in_the_container(task: Path, engine: Engine) -> None:
    ran = run_child("task", "shell", task, "-e", "docker", stdin="pwd; cat; exit 3\nmore\n")
    assert (ran.code, ran.out) == (3, "/app\nmore\n")
    assert f"{task}: a shell in its docker, in /app" in ran.err
    assert not engine.containers()


def test_a_terminal_reaches_the_container(task: Path, engine: Engine) -> None:
    with on_screen("task", "shell", task, "-e", "docker") as screen:
        screen.wait_for("everything in it is removed")
        screen.type("test -t 0 && echo $((6 * 7)); exit 5\n")
        screen.wait_for("\n42")
        assert screen.child.wait(60) == 5
    assert not engine.containers()
