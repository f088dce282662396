"""The digest in lock.json: which files count, and what .gitignore takes away."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.task.digests import find_lock_files, lock_digest
from tests.task.trees import JOBS, TASKS, make_task, write

USUAL = [
    "environment/Dockerfile",
    "instruction.md",
    "solution/solve.sh",
    "task.toml",
    "tests/test.sh",
]


def recorded() -> dict[str, str]:
    """The digest that harbor locked for each real task, by the task's path."""
    found = {}
    for path in JOBS.glob("*/lock.json"):
        for trial in json.loads(path.read_bytes())["trials"]:
            found[trial["task"]["path"].removeprefix("tasks/")] = trial["task"]["digest"]
    return {path: digest for path, digest in found.items() if (TASKS / path).exists()}


def test_the_digests_of_real_locks_come_out() -> None:
    expected = recorded()
    assert len(expected) == 39
    assert {path: f"sha256:{lock_digest(TASKS / path)}" for path in expected} == expected


def test_it_is_the_formula(tmp_path: Path) -> None:
    write(tmp_path, {"task.toml": "", "tests/a": "x", "tests/B": "y"})
    lines = [
        f"{name}\0{hashlib.sha256(text).hexdigest()}\n"
        for name, text in [("task.toml", b""), ("tests/B", b"y"), ("tests/a", b"x")]
    ]
    assert lock_digest(tmp_path) == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_only_what_is_published_counts(tmp_path: Path) -> None:
    make_task(tmp_path, **{"notes.txt": "", ".git/HEAD": "", "README.md": "", "Tests/a": ""})
    assert find_lock_files(tmp_path) == sorted([*USUAL, "README.md"])


def test_without_gitignore_the_usual_rubbish_is_left_out(tmp_path: Path) -> None:
    rubbish = ["a.pyc", "__pycache__/x", ".DS_Store", "b.swp", "c.swo", "d~"]
    make_task(tmp_path, **{f"tests/{name}": "" for name in rubbish})
    assert find_lock_files(tmp_path) == USUAL


def test_a_gitignore_stands_in_for_the_usual_patterns(tmp_path: Path) -> None:
    make_task(tmp_path, **{".gitignore": "*.log\n", "tests/a.pyc": "", "tests/b.log": ""})
    assert find_lock_files(tmp_path) == sorted([*USUAL, "tests/a.pyc"])


def test_the_last_pattern_that_fits_decides(tmp_path: Path) -> None:
    make_task(tmp_path, **{".gitignore": "tests/*\n!tests/test.sh\n", "tests/data": ""})
    assert find_lock_files(tmp_path) == USUAL


def test_a_gitignore_further_down_is_a_file_like_any_other(tmp_path: Path) -> None:
    make_task(tmp_path, **{"tests/.gitignore": "*", "tests/data": ""})
    assert find_lock_files(tmp_path) == sorted([*USUAL, "tests/.gitignore", "tests/data"])


def test_links_to_files_count_and_links_to_directories_do_not(tmp_path: Path) -> None:
    make_task(tmp_path / "task")
    write(tmp_path, {"beside/file": "x"})
    (tmp_path / "task/tests/file").symlink_to("../../beside/file")
    (tmp_path / "task/tests/directory").symlink_to("../../beside")
    (tmp_path / "task/tests/dangling").symlink_to("nowhere")
    (tmp_path / "task/steps").symlink_to("../beside")
    expected = sorted([*USUAL, "steps/file", "tests/file"])
    assert find_lock_files(tmp_path / "task") == expected


def test_a_pipe_does_not_count_and_is_not_waited_for(tmp_path: Path) -> None:
    make_task(tmp_path)
    os.mkfifo(tmp_path / "tests" / "pipe")
    assert find_lock_files(tmp_path) == USUAL


@pytest.mark.parametrize("name", ["README.md", ".gitignore"])
def test_a_pipe_in_the_place_of_a_file_is_a_sentence(tmp_path: Path, name: str) -> None:
    make_task(tmp_path)
    os.mkfifo(tmp_path / name)
    with pytest.raises(TaskError, match=rf"{name}: .*not a regular file"):
        lock_digest(tmp_path)


def test_a_pattern_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    make_task(tmp_path, **{".gitignore": "!\n"})
    with pytest.raises(TaskError, match=r"\.gitignore: cannot be used: "):
        lock_digest(tmp_path)


@pytest.mark.parametrize("line", ["*a" * 40 + "b", "**/a/" * 40 + "b", "a\n" * 20_000])
def test_patterns_that_take_for_ever_are_refused(tmp_path: Path, line: str) -> None:
    deep = "tests/" + "a/" * 60 + "a" * 200
    make_task(tmp_path, **{".gitignore": line, deep: ""})
    began = time.monotonic()
    with pytest.raises(TaskError, match=r"so many stars|expected at most"):
        lock_digest(tmp_path)
    assert time.monotonic() - began < 5


def test_a_name_that_is_not_utf8_is_a_sentence(tmp_path: Path) -> None:
    make_task(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/tests/\xff")).write_text("x")
    with pytest.raises(TaskError, match="has a file whose name is not UTF-8"):
        lock_digest(tmp_path)
