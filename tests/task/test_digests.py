"""All digests of one task together."""

import time
from pathlib import Path

from proctor.task.digests import load_digests
from proctor.task.hashed import FileHashes
from tests.task.trees import make_task


def test_every_digest_is_there_and_files_are_counted(tmp_path: Path) -> None:
    make_task(tmp_path, **{"notes.txt": "abc", "tests/a.pyc": "12"})
    digests = load_digests(tmp_path)
    names = {digests.task_checksum, digests.lock_digest, digests.dataset_v1}
    assert {len(name) for name in names} == {64}
    assert len(names) == 3
    assert {file.path for file in digests.files} - digests.locked == {"notes.txt", "tests/a.pyc"}
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert digests.size == sum(path.stat().st_size for path in files)


def test_links_are_followed_as_the_checksum_does(tmp_path: Path) -> None:
    task = make_task(tmp_path / "task")
    plain = load_digests(task)
    assert plain.followed == plain.files
    (task / "tests/test.sh").rename(tmp_path / "test.sh")
    (task / "tests/test.sh").symlink_to(tmp_path / "test.sh")
    linked = load_digests(task)
    assert (linked.task_checksum, linked.followed) == (plain.task_checksum, plain.followed)
    assert len(linked.files) == len(plain.files) - 1


def test_without_odd_files_lock_and_dataset_digest_are_one(tmp_path: Path) -> None:
    digests = load_digests(make_task(tmp_path))
    assert digests.lock_digest == digests.dataset_v1


def test_many_attempts_read_a_task_once(tmp_path: Path) -> None:
    hashes = FileHashes(clock_ns=lambda: time.time_ns() + 3_000_000_000)
    make_task(tmp_path)
    first = load_digests(tmp_path, hashes)
    assert [load_digests(tmp_path, hashes) for _ in range(5)] == [first] * 5
    assert hashes.reads == 5
    assert len({file.sha256 for file in first.files}) == 5


def test_a_changed_file_changes_every_digest(tmp_path: Path) -> None:
    hashes = FileHashes(clock_ns=lambda: time.time_ns() + 3_000_000_000)
    before = load_digests(make_task(tmp_path), hashes)
    (tmp_path / "tests/test.sh").write_text("exit 0\n")
    after = load_digests(tmp_path, hashes)
    assert before.task_checksum != after.task_checksum
    assert before.lock_digest != after.lock_digest
    assert before.dataset_v1 != after.dataset_v1
