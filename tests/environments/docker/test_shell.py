"""`proctor task try`, with and without `--shell`, with `-e docker`: in the container of a task."""

from pathlib import Path

import pytest

from tests.cli.programs import run_child
from tests.cli.test_task_shell import on_screen
from tests.environments.docker.engine import Engine
from tests.task.trees import make_task


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    dockerfile = {"environment/Dockerfile": "FROM debian:12\nWORKDIR /app\n"}
    config = '[environment]\nnetwork_mode = "no-network"\n'
    return make_task(tmp_path / "task", config, **dockerfile)


def test_commands_from_a_pipe_run_in_the_container(task: Path, engine: Engine) -> None:
    ran = run_child(
        "task", "try", task, "--shell", "-e", "docker", stdin="pwd; cat; exit 3\nmore\n"
    )
    assert (ran.code, ran.out) == (3, "/app\nmore\n")
    assert f"{task}: a shell in its docker, in /app" in ran.err
    assert not engine.containers()


def test_a_task_is_tried_in_containers(task: Path, engine: Engine) -> None:
    ran = run_child("task", "try", task, "-e", "docker", "-k", "1")
    # The tests of this task pass whatever is done.
    assert ran.code == 1
    assert "\n  oracle  1 of 1 attempt passed (1)\n" in ran.out
    assert "\nnop-passed: " in ran.out
    assert not engine.containers()


def test_a_terminal_reaches_the_container(task: Path, engine: Engine) -> None:
    with on_screen("task", "try", task, "--shell", "-e", "docker") as screen:
        screen.wait_for("everything in it is removed")
        screen.type("test -t 0 && echo $((6 * 7)); exit 5\n")
        screen.wait_for("\n42")
        assert screen.child.wait(60) == 5
    assert not engine.containers()
