"""Digests of files are remembered for as long as the files do not change."""

import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import TaskError
from proctor.task.hashed import FileHashes

LATER = 3_000_000_000


def settled(**options: int) -> FileHashes:
    """Hashes of a time at which nothing was written a moment ago."""
    return FileHashes(clock_ns=lambda: time.time_ns() + LATER, **options)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_file_is_read_once(tmp_path: Path) -> None:
    path, hashes = tmp_path / "file", settled()
    path.write_bytes(b"one")
    assert [hashes.digest_of(path) for _ in range(3)] == [sha256(b"one")] * 3
    assert hashes.reads == 1


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path, hashes = tmp_path / "file", settled()
    for data in (b"one", b"two", b"four", b""):
        path.write_bytes(data)
        assert hashes.digest_of(path) == sha256(data)


def test_a_change_that_hides_its_time_is_seen(tmp_path: Path) -> None:
    path, hashes = tmp_path / "file", settled()
    path.write_bytes(b"one")
    before = path.stat()
    hashes.digest_of(path)
    # The time of the change itself cannot be set, but two changes can fall into one tick of it.
    time.sleep(0.02)
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert hashes.digest_of(path) == sha256(b"two")


def test_what_was_just_written_is_not_remembered(tmp_path: Path) -> None:
    path, hashes = tmp_path / "file", FileHashes()
    for number in range(200):
        # Same size, and many of these within one tick of the clock.
        path.write_bytes(b"%03d" % number)
        assert hashes.digest_of(path) == sha256(b"%03d" % number)
    assert len(hashes) == 0


def test_another_file_of_the_same_name_is_read(tmp_path: Path) -> None:
    path, hashes = tmp_path / "file", settled()
    path.write_bytes(b"one")
    hashes.digest_of(path)
    other = tmp_path / "other"
    other.write_bytes(b"two")
    other.replace(path)
    assert hashes.digest_of(path) == sha256(b"two")


def test_links_are_the_file_that_they_lead_to(tmp_path: Path) -> None:
    path, link, hashes = tmp_path / "file", tmp_path / "link", settled()
    path.write_bytes(b"one")
    link.symlink_to(path)
    assert hashes.digest_of(path) == hashes.digest_of(link)
    assert hashes.reads == 1


def test_it_forgets_what_was_not_asked_for_longest(tmp_path: Path) -> None:
    hashes = settled(capacity=2)
    first, second, third = (tmp_path / name for name in "abc")
    for path in (first, second):
        path.write_bytes(path.name.encode())
        hashes.digest_of(path)
    hashes.digest_of(first)
    third.write_bytes(b"c")
    hashes.digest_of(third)
    assert (len(hashes), hashes.reads) == (2, 3)
    hashes.digest_of(first)
    assert hashes.reads == 3
    hashes.digest_of(second)
    assert hashes.reads == 4


@pytest.mark.parametrize("size", [0, 1, 16384, (1 << 23) + 1])
def test_small_and_large_files_are_hashed_alike(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    assert FileHashes().digest_of(path) == sha256(b"x" * size)


@given(st.binary())
def test_it_is_sha256(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "hashed"
    path.write_bytes(data)
    assert FileHashes().digest_of(path) == sha256(data)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TaskError, match="pipe: not a regular file; it cannot be hashed"):
        FileHashes().digest_of(tmp_path / "pipe")


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="gone: cannot be read: No such file or directory"):
        FileHashes().digest_of(tmp_path / "gone")
