"""Older Terminal-Bench tasks as Harbor's; what harbor's mapper writes is compared elsewhere."""

import os
import subprocess
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.task.directory import load_task
from proctor.task.terminal_bench import is_terminal_bench_task, map_task
from tests.conformance.old_tasks import FILES, below, client, compose, made
from tests.task.trees import make_task, write


def old_task(root: Path, files: dict[str, str] = FILES) -> Path:
    return write(root / "old", files)


def sentence_for(root: Path, source: Path) -> str:
    """Why a task cannot be mapped; the source's own path left out."""
    with pytest.raises(TaskError) as caught:
        map_task(source, root / "mapped" / "old")
    assert not (root / "mapped" / "old").exists()
    return str(caught.value).removeprefix(f"{source}: ")


def test_a_directory_with_task_yaml_and_no_task_toml_is_an_older_task(tmp_path: Path) -> None:
    assert is_terminal_bench_task(old_task(tmp_path))
    assert not is_terminal_bench_task(make_task(tmp_path / "new"))
    assert not is_terminal_bench_task(make_task(tmp_path / "both", **{"task.yaml": "x"}))
    assert not is_terminal_bench_task(tmp_path / "nowhere")


def test_limits_and_instruction_are_taken_over(tmp_path: Path) -> None:
    task = load_task(map_task(old_task(tmp_path), tmp_path / "hello").directory)
    assert task.name == "hello"
    assert task.config.agent.timeout_sec == 900
    assert task.config.verifier.timeout_sec == 180.5
    assert task.instruction.startswith('Write "hello" to /app/hello.txt')
    assert task.config.metadata["difficulty"] == "medium"
    assert task.find_solution_script() == task.directory / "solution" / "solve.sh"


@pytest.mark.parametrize(("ending", "reward"), [("true", "1\n"), ("false", "0\n"), ("", "1\n")])
def test_the_exit_code_of_the_tests_is_the_reward(tmp_path: Path, ending: str, reward: str) -> None:
    source = old_task(tmp_path, made({"run-tests.sh": f"#!/bin/bash\n{ending}"}))
    script = map_task(source, tmp_path / "hello").directory / "tests" / "test.sh"
    script.write_text(script.read_text().replace("/logs/verifier", str(tmp_path)))
    done = subprocess.run([script], check=False)
    assert (tmp_path / "reward.txt").read_text() == reward
    assert (done.returncode == 0) == (reward == "1\n")


def test_a_compose_file_that_no_dockerfile_can_say_is_kept_and_noted(tmp_path: Path) -> None:
    mapped = map_task(old_task(tmp_path, compose("    ports: ['80:80']\n")), tmp_path / "hello")
    assert (mapped.directory / "environment" / "docker-compose.yaml").exists()
    assert [str(note) for note in mapped.notes] == [
        "docker-compose.yaml is kept; a Dockerfile cannot express: ports"
    ]


def test_long_volumes_keep_the_compose_file(tmp_path: Path) -> None:
    files = client("    build: .\n    volumes:\n      - {type: bind, source: a, target: /a}\n")
    mapped = map_task(old_task(tmp_path, files), tmp_path / "hello")
    assert [note.code for note in mapped.notes] == ["compose-kept"]


def test_a_build_context_with_tests_and_solution_in_it_is_noted(tmp_path: Path) -> None:
    mapped = map_task(old_task(tmp_path, client("    build: ./\n")), tmp_path / "hello")
    assert [note.code for note in mapped.notes] == ["task-in-context"]


def test_of_two_dockerfiles_the_upper_one_is_extended(tmp_path: Path) -> None:
    files = below("c", **{"c/Dockerfile": "FROM a\n", "c/z/Dockerfile": "FROM z\n"})
    environment = map_task(old_task(tmp_path, files), tmp_path / "hello").directory / "environment"
    assert "TEST_DIR" in (environment / "Dockerfile").read_text()
    assert (environment / "z" / "Dockerfile").read_text() == "FROM z\n"


@pytest.mark.parametrize("target", ["/etc/passwd", "../beside", "nowhere"])
def test_a_link_that_leads_out_or_nowhere_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "beside").write_text("secret")
    source = old_task(tmp_path)
    (source / "data" / "link").symlink_to(target)
    assert "data/link is a link out of the task or to nothing" in sentence_for(tmp_path, source)


def test_a_link_to_a_file_of_the_task_is_followed(tmp_path: Path) -> None:
    source = old_task(tmp_path)
    (source / "data" / "link").symlink_to("in.txt")
    mapped = map_task(source, tmp_path / "hello").directory / "environment" / "data" / "link"
    assert mapped.read_text() == "1\n"
    assert not mapped.is_symlink()


def test_a_link_round_in_a_circle_is_refused(tmp_path: Path) -> None:
    source = old_task(tmp_path)
    (source / "tests" / "loop").symlink_to("..")
    assert "tests/loop is a link to a directory" in sentence_for(tmp_path, source)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    source = old_task(tmp_path)
    os.mkfifo(source / "data" / "pipe")
    assert "data/pipe is not a file, directory or link" in sentence_for(tmp_path, source)


@pytest.mark.parametrize("context", ["/etc", "../beside", "a/../../b"])
def test_a_build_context_outside_the_task_is_refused(tmp_path: Path, context: str) -> None:
    source = old_task(tmp_path, client(f"    build: {context}\n"))
    assert sentence_for(tmp_path, source) == (
        f"docker-compose.yaml: build context of service 'other' is {context!r}; "
        "expected a path below the task"
    )


def test_a_yaml_that_grows_without_end_is_refused_at_once(tmp_path: Path) -> None:
    bomb = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]\n" for n in range(1, 30))
    text = f"x0: &x0 [lol]\n{bomb}services: {{client: {{environment: {{A: *x29}}}}}}\n"
    source = old_task(tmp_path, made({"docker-compose.yaml": text}))
    assert sentence_for(tmp_path, source) == (
        "docker-compose.yaml: environment.A is list; expected text or a number"
    )


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("task.yaml", "[" * 20_000, "task.yaml: not readable as YAML: "),
        ("task.yaml", "difficulty: easy\n", "task.yaml: instruction: Field required"),
        ("task.yaml", "- 1\n", "task.yaml: all of it: "),
        ("task.yaml", "a: b\n" * (1 << 18), "cannot be converted: "),
        ("solution.yaml", "- ls\n", "uses solution.yaml, which harbor does not support"),
    ],
    # The texts themselves would be the names of the tests, with 20,000 characters.
    ids=["nested", "without-instruction", "a-list", "a-million-characters", "solution"],
)
def test_what_cannot_be_mapped_gets_a_sentence(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    source = old_task(tmp_path, made({name: text}))
    assert sentence_for(tmp_path, source).startswith(sentence)


@pytest.mark.parametrize("name", ["run-tests.sh", "docker-compose.yaml", "task.yaml"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    source = old_task(tmp_path, made({name: None}))
    assert sentence_for(tmp_path, source).startswith(f"no {name}; ")


def test_what_is_at_the_target_is_left_alone(tmp_path: Path) -> None:
    source = old_task(tmp_path)
    map_task(source, tmp_path / "hello")
    with pytest.raises(TaskError, match="already exists"):
        map_task(source, tmp_path / "hello")
    assert load_task(tmp_path / "hello").name == "hello"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hello", "old"]
