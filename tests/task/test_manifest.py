"""Dataset digest v1 of files, tasks and datasets."""

import hashlib
import os
from pathlib import Path

import pytest

from proctor.errors import TaskError
from proctor.task.manifest import FileDigest, dataset_digest, hash_files, task_digest
from tests.task.trees import make_task, write


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_files_come_in_order_of_code_points(tmp_path: Path) -> None:
    write(tmp_path, {"b": "1", "B": "22", "a/c": "333", "a-b": "", "ä": ""})
    assert hash_files(tmp_path) == (
        FileDigest("B", sha256("22"), 2),
        FileDigest("a-b", sha256(""), 0),
        FileDigest("a/c", sha256("333"), 3),
        FileDigest("b", sha256("1"), 1),
        FileDigest("ä", sha256(""), 0),
    )


def test_a_task_is_the_formula(tmp_path: Path) -> None:
    write(tmp_path, {"b": "1", "a/c": "2"})
    assert task_digest(hash_files(tmp_path)) == sha256(f"a/c\0{sha256('2')}\nb\0{sha256('1')}\n")


def test_a_dataset_is_the_formula() -> None:
    assert dataset_digest({"b": "2", "a": "1"}) == sha256("a\x001\nb\x002\n")
    assert dataset_digest({}) == sha256("")


def test_regular_files_alone_count(tmp_path: Path) -> None:
    plain = hash_files(make_task(tmp_path))
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("task.toml")
    (tmp_path / "tests" / "link").symlink_to("../environment")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "task.toml").chmod(0o755)
    assert hash_files(tmp_path) == plain


def test_no_name_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", "__pycache__/a.pyc": "", ".gitignore": "*"})
    assert [file.path for file in hash_files(tmp_path)] == [
        ".git/HEAD",
        ".gitignore",
        "__pycache__/a.pyc",
    ]


def test_a_task_that_is_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    make_task(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    assert hash_files(tmp_path / "link") == hash_files(tmp_path / "real")


def test_a_name_that_is_not_utf8_is_a_sentence(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("x")
    with pytest.raises(TaskError, match="its name is not UTF-8; it cannot be hashed"):
        hash_files(tmp_path)


def test_a_missing_directory_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="gone: cannot be read: No such file or directory"):
        hash_files(tmp_path / "gone")
