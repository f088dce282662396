"""A file that is deleted under the writer comes back, and nothing else is written to."""

import errno
import os
import re
import resource
import threading
from pathlib import Path

import pytest

from proctor.traces.trajectory import load_trajectory
from proctor.traces.writer import TrajectoryWriter

HEADER = b'{"version": 1, "format": "aec-bench-trajectory"}\n'
ENTRY = b'{"role": "assistant", "step": 3, "content": "x"}\n'


def said_in(path: Path) -> list[str | None]:
    return [entry.content for entry in load_trajectory(str(path), salvage=True).entries]


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_that_the_agent_deletes_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "t"
    before = count_open_files()
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        path.unlink()
        trace.user("two")
        path.unlink()
        with TrajectoryWriter(path) as other:
            other.user("other")
        trace.user("three")
    assert said_in(path) == ["other", "three"]
    assert count_open_files() <= before


def test_a_deleted_file_comes_back_with_all_that_was_in_it(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path) as trace:
        for text in ("one", "x" * 3_000_000, "three"):
            trace.user(text)
        whole = path.read_bytes()
        path.unlink()
        trace.user("four")
    assert path.read_bytes().startswith(whole)
    assert len(load_trajectory(str(path)).entries) == 4


def test_a_deleted_directory_fails_and_can_be_mended(tmp_path: Path) -> None:
    path = tmp_path / "d" / "t"
    path.parent.mkdir()
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        path.unlink()
        path.parent.rmdir()
        with pytest.raises(FileNotFoundError):
            trace.user("two")
        path.parent.mkdir()
        trace.user("three")
    assert said_in(path) == ["one", "three"]


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    path, victim = tmp_path / "t", tmp_path / "victim.txt"
    for content in (b"mine\n", HEADER, b"", None):
        if content is not None:
            victim.write_bytes(content)
        before = count_open_files()
        with TrajectoryWriter(path) as trace:
            trace.user("one")
            path.unlink()
            path.symlink_to(victim)
            for _ in range(2):
                with pytest.raises(OSError, match="a symbolic link put in its place") as failure:
                    trace.user("two")
                assert (failure.value.errno, failure.value.filename) == (errno.ELOOP, str(path))
            assert (victim.read_bytes() if victim.exists() else None) == content
            path.unlink()
            trace.user("three")
        assert said_in(path) == ["one", "three"]
        assert count_open_files() <= before
        path.unlink()
        victim.unlink(missing_ok=True)


@pytest.mark.parametrize("content", [b"junk\n", b"junk", b"[1]\n", b"\0\0junk"])
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_of_another_kind_in_its_place_is_left_alone(
    tmp_path: Path, content: bytes, linked: bool
) -> None:
    path, victim = tmp_path / "t", tmp_path / "victim.txt"
    before = count_open_files()
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        path.unlink()
        victim.write_bytes(content)
        if linked:
            path.hardlink_to(victim)
        else:
            victim.rename(path)
        for _ in range(2):
            with pytest.raises(ValueError, match=re.escape(f"{path}: line 1 is not of a traj")):
                trace.user("two")
        assert path.read_bytes() == content
        path.unlink()
        trace.user("three")
    assert said_in(path) == ["one", "three"]
    assert count_open_files() <= before


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_no_file_in_its_place_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        path.unlink()
        if kind == "directory":
            path.mkdir()
        else:
            os.mkfifo(path)
        before = count_open_files()
        with pytest.raises(OSError, match=re.escape(repr(str(path)))):
            trace.user("two")
        assert count_open_files() <= before


@pytest.mark.parametrize("content", [b"", b"\n", b"\0\0", b'{"role": "us'])
def test_what_was_in_it_comes_back_also_where_there_is_a_file_without_entries(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        path.unlink()
        path.write_bytes(content)
        trace.user("two")
    assert path.read_bytes().startswith(content)
    assert said_in(path) == ["one", "two"]


def test_a_trajectory_in_its_place_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        (tmp_path / "other").write_bytes(HEADER + ENTRY)
        (tmp_path / "other").rename(path)
        trace.user("two")
    assert path.read_bytes().startswith(HEADER + ENTRY)
    assert said_in(path) == ["x", "two"]


@pytest.mark.parametrize("name", ["t", "d/../t"])
def test_a_file_comes_back_where_it_was_whatever_the_directory_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path)
    with TrajectoryWriter(name) as trace:
        assert trace.path == str(tmp_path / "t")
        trace.user("one")
        monkeypatch.chdir(tmp_path / "d")
        (tmp_path / "t").unlink()
        trace.user("two")
    assert said_in(tmp_path / "t") == ["one", "two"]
    assert list((tmp_path / "d").iterdir()) == []


def test_a_file_that_was_named_by_a_link_comes_back_where_it_was(tmp_path: Path) -> None:
    path, link = tmp_path / "t", tmp_path / "link"
    link.symlink_to("t")
    with TrajectoryWriter(link) as trace:
        trace.user("one")
        path.unlink()
        trace.user("two")
        path.unlink()
        link.unlink()
        link.symlink_to("victim")
        trace.user("three")
    assert said_in(path) == ["one", "two", "three"]
    assert not (tmp_path / "victim").exists()


def test_a_file_that_the_disk_cannot_take_back_comes_back_whole_later(tmp_path: Path) -> None:
    path = tmp_path / "t"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with TrajectoryWriter(path) as trace:
        for text in ("one", "two", "three"):
            trace.user(text)
        whole = path.read_bytes()
        path.unlink()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) - 10, hard))
        try:
            with pytest.raises(OSError, match="too large"):
                trace.user("lost")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == b""
        trace.user("four")
    assert path.read_bytes().startswith(whole)
    assert said_in(path) == ["one", "two", "three", "four"]


def test_writers_that_bring_a_file_back_at_once_bring_it_back_once(tmp_path: Path) -> None:
    path = tmp_path / "t"
    writers = [TrajectoryWriter(path) for _ in range(4)]
    for at in range(20):
        writers[0].user(f"{at} " + "x" * 200_000)
    whole = path.read_bytes()
    path.unlink()
    start = threading.Barrier(len(writers))

    def work(trace: TrajectoryWriter, name: str) -> None:
        start.wait()
        trace.user(name)
        trace.close()

    pairs = zip(writers, "abcd", strict=True)
    threads = [threading.Thread(target=work, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes().startswith(whole)
    assert sorted(str(text) for text in said_in(path)[20:]) == ["a", "b", "c", "d"]
