"""Harbor's task_checksum: what counts, what does not, and what cannot be hashed."""

import hashlib
import json
import os
import time
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.task.checksum import checksum_of_list, hash_tree, task_checksum
from proctor.task.manifest import hash_files
from tests.task.trees import JOBS, TASKS, make_task, write
from tests.unprivileged import unprivileged


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def recorded() -> dict[str, str]:
    """The checksum that harbor wrote for each real task, by the task's path."""
    found = {}
    for path in JOBS.glob("*/*/result.json"):
        result = json.loads(path.read_bytes())
        found[result["task_id"]["path"].removeprefix("tasks/")] = result["task_checksum"]
    return {path: checksum for path, checksum in found.items() if (TASKS / path).exists()}


def test_the_checksums_of_real_trials_come_out() -> None:
    expected = recorded()
    assert len(expected) == 39
    assert {path: task_checksum(TASKS / path) for path in expected} == expected


def test_it_is_the_formula(tmp_path: Path) -> None:
    write(tmp_path, {"b": "two", "a/c": "one"})
    inner = sha256(f"data:{sha256('one')}\0name:c")
    outer = sha256(f"data:{sha256('two')}\0name:b\0\0dirhash:{inner}\0name:a")
    assert task_checksum(tmp_path) == outer


def test_nothing_is_ignored(tmp_path: Path) -> None:
    plain = task_checksum(make_task(tmp_path))
    write(tmp_path, {".git/HEAD": "x"})
    assert task_checksum(tmp_path) != plain


def test_empty_directories_pipes_and_dangling_links_do_not_count(tmp_path: Path) -> None:
    plain = task_checksum(make_task(tmp_path))
    (tmp_path / "empty" / "too").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    assert task_checksum(tmp_path) == plain


def test_a_link_counts_as_what_it_leads_to(tmp_path: Path) -> None:
    write(tmp_path, {"copied/a/file": "x", "copied/b": "y", "beside/file": "x", "beside/b": "y"})
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "a").symlink_to("../copied/a")
    (linked / "b").symlink_to(tmp_path / "beside" / "b")
    assert task_checksum(linked) == task_checksum(tmp_path / "copied")
    assert hash_tree(linked).files == hash_files(tmp_path / "copied")


def test_without_links_its_files_are_those_of_the_dataset_digest(tmp_path: Path) -> None:
    make_task(tmp_path, **{"a.b/c": "1", "a/b": "2", "a/z/y": "3", "é": "4"})
    (tmp_path / "empty").mkdir()
    assert hash_tree(tmp_path).files == hash_files(tmp_path)


def test_a_file_is_listed_under_every_path_that_leads_to_it(tmp_path: Path) -> None:
    write(tmp_path, {"a/file": "x", "b": "y"})
    (tmp_path / "again").symlink_to("a")
    (tmp_path / "c").symlink_to("b")
    (tmp_path / "dangling").symlink_to("nowhere")
    files = hash_tree(tmp_path).files or ()
    assert {file.path: (file.sha256, file.size) for file in files} == {
        name: (sha256(text), 1)
        for name, text in {"a/file": "x", "again/file": "x", "b": "y", "c": "y"}.items()
    }


@pytest.mark.parametrize("target", [".", "..", "../a", "../../beside", "../.."])
def test_links_in_a_circle_are_a_sentence(tmp_path: Path, target: str) -> None:
    write(tmp_path, {"task/a/file": "x", "beside/file": "x"})
    (tmp_path / "task" / "a" / "link").symlink_to(target)
    (tmp_path / "beside" / "back").symlink_to(tmp_path / "task" / "a")
    with pytest.raises(TaskError, match="its links form a cycle through /"):
        task_checksum(tmp_path / "task")


def test_a_link_to_itself_is_a_sentence(tmp_path: Path) -> None:
    make_task(tmp_path)
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(TaskError, match="link: cannot be read: Too many levels of symbolic links"):
        task_checksum(tmp_path)


def test_links_that_make_a_million_million_paths_take_no_time(tmp_path: Path) -> None:
    write(tmp_path, {"d40/file": "x"})
    for number in range(40):
        directory = tmp_path / f"d{number}"
        directory.mkdir()
        for name in ("a", "b"):
            (directory / name).symlink_to(f"../d{number + 1}")
    began = time.monotonic()
    tree = hash_tree(tmp_path / "d0")
    assert (len(tree.checksum), tree.files) == (64, None)
    (tmp_path / "d40" / "file").rename(tmp_path / "d0" / "file")
    assert [file.path for file in hash_tree(tmp_path / "d0").files or ()] == ["file"]
    assert time.monotonic() - began < 5


def test_deep_directories_are_walked(tmp_path: Path) -> None:
    deep = tmp_path / Path(*["d"] * 400)
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    digest = sha256(f"data:{sha256('x')}\0name:file")
    for _ in range(400):
        digest = sha256(f"dirhash:{digest}\0name:d")
    assert task_checksum(tmp_path) == digest


def test_a_directory_without_files_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="has no files; there is nothing to hash"):
        task_checksum(tmp_path)


def test_a_name_that_is_not_utf8_is_a_sentence(tmp_path: Path) -> None:
    make_task(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("x")
    with pytest.raises(TaskError, match="has a file whose name is not UTF-8"):
        task_checksum(tmp_path)


@pytest.mark.parametrize("name", ["tests/test.sh", "tests"])
def test_what_may_not_be_read_is_a_sentence(open_path: Path, name: str) -> None:
    make_task(open_path)
    (open_path / name).chmod(0)
    with unprivileged(), pytest.raises(TaskError, match=f"{name}: cannot be read: Permission"):
        task_checksum(open_path)


@pytest.mark.parametrize("path", sorted(recorded()))
def test_the_list_of_a_tasks_files_gives_the_checksum_that_harbor_wrote(path: str) -> None:
    files = hash_tree(TASKS / path).files
    assert files is not None
    assert checksum_of_list((file.path, file.sha256) for file in files) == recorded()[path]


def test_a_list_knows_directories_that_hold_nothing_but_others() -> None:
    leaf = sha256(f"data:{'0' * 64}\0name:x")
    middle = sha256(f"dirhash:{leaf}\0name:b")
    assert checksum_of_list([("a/b/x", "0" * 64)]) == sha256(f"dirhash:{middle}\0name:a")
