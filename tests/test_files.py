"""Durable writes and small reads."""

import errno
import os
import re
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor import files
from proctor.files import read_head, read_small, write_atomic, write_new

SIZES = [0, 1, 16383, 16384, 16385, 100_000]


@pytest.mark.parametrize("size", SIZES)
def test_a_file_is_read_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    assert read_small(str(tmp_path / "f")) == data


@pytest.mark.parametrize("size", [0, 5, 40_000, 300_000])
def test_the_head_of_a_file_is_all_of_a_short_one(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "f").write_bytes(data)
    before = count_open_files()
    assert read_head(str(tmp_path / "f"), 1 << 16) == data[: 1 << 16]
    assert count_open_files() <= before


def test_a_pipe_or_a_device_has_no_head(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = count_open_files()
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            read_head(str(path), 10)
    assert count_open_files() <= before


def test_a_small_file_takes_three_system_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"x" * 16383)
    monkeypatch.setattr(files, "_read_all", None)
    assert len(read_small(str(tmp_path / "f"))) == 16383


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def error_of(path: Path) -> OSError:
    before = count_open_files()
    with pytest.raises(OSError) as failure:  # noqa: PT011 - the callers look at the errno
        read_small(str(path))
    assert count_open_files() <= before
    assert failure.value.filename == str(path)
    return failure.value


def test_reading_leaves_nothing_open(tmp_path: Path) -> None:
    before = count_open_files()
    (tmp_path / "f").write_bytes(b"x" * 40_000)
    read_small(str(tmp_path / "f"))
    assert count_open_files() <= before


def test_an_absent_file_is_file_not_found(tmp_path: Path) -> None:
    assert isinstance(error_of(tmp_path / "nowhere"), FileNotFoundError)


def test_a_directory_is_refused_by_its_name(tmp_path: Path) -> None:
    error = error_of(tmp_path)
    assert str(error) == f"[Errno 21] Is a directory: '{tmp_path}'"


def test_a_device_is_not_drained(tmp_path: Path) -> None:
    (tmp_path / "zeros").symlink_to("/dev/zero")
    error = error_of(tmp_path / "zeros")
    assert error.errno == errno.EINVAL
    assert error.strerror == "not a regular file"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_small(str(tmp_path / "pipe")) == b""
    writer = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        assert error_of(tmp_path / "pipe").errno == errno.EAGAIN
    finally:
        os.close(writer)


def test_a_file_above_256_mib_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate((1 << 28) + 1)
    error = error_of(tmp_path / "large")
    assert error.errno == errno.EFBIG
    assert error.strerror == "larger than 256 MiB"


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 20_000)
    assert len(read_small(str(tmp_path / "f"), largest=20_000)) == 20_000
    with pytest.raises(OSError) as failure:  # noqa: PT011 - its errno is looked at
        read_small(str(tmp_path / "f"), largest=19_999)
    assert failure.value.errno == errno.EFBIG


def test_a_read_file_is_not_handed_to_child_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").touch()
    flags = []
    really_open = os.open

    def watch(path: str, mode: int) -> int:
        flags.append(mode)
        return really_open(path, mode)

    monkeypatch.setattr(os, "open", watch)
    read_small(str(tmp_path / "f"))
    assert flags == [os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK]


@given(st.one_of(st.none(), st.binary(max_size=100)), st.binary(max_size=50_000))
def test_what_was_written_is_read_back(old: bytes | None, new: bytes) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory, "result.json")
        if old is not None:
            path.write_bytes(old)
        write_atomic(path, new)
        assert read_small(str(path)) == new
        assert list(Path(directory).iterdir()) == [path]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Every write beyond that many bytes of a file fails, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("old", [None, b"old"])
def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, old: bytes | None
) -> None:
    path = tmp_path / "result.json"
    if old is not None:
        path.write_bytes(old)
    with file_size_limit(1000), pytest.raises(OSError, match="File too large"):
        write_atomic(path, b"x" * 100_000)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([] if old is None else [old])


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_call_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    before = count_open_files()
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(path, b"new")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]
    assert count_open_files() <= before


def test_a_write_killed_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a" * 300_000)
    script = "import sys; from pathlib import Path; from proctor.files import write_atomic\n"
    script += "while True: [write_atomic(Path(sys.argv[1]), b * 300_000) for b in (b'b', b'a')]"
    with subprocess.Popen([sys.executable, "-c", script, str(path)]) as writer:
        contents = {path.read_bytes() for _ in range(300)}
        writer.kill()
    contents.add(path.read_bytes())
    assert contents <= {b"a" * 300_000, b"b" * 300_000}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0, 0o666)])
def test_the_file_may_be_read_by_whom_the_umask_lets(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "f", b"x")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == mode


def test_file_and_directory_are_synced_before_the_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    really_replace = os.replace

    def sync(fd: int) -> None:
        status = os.fstat(fd)
        order.append("directory" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes")

    def replace(source: str, target: Path) -> None:
        assert re.fullmatch(r"\.[0-9a-f]{16}\.tmp", Path(source).name)
        assert Path(source).parent == target.parent
        order.append(f"rename to {target.name}")
        really_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    before = count_open_files()
    write_atomic(tmp_path / "stats", b"12345")
    assert order == ["5 bytes", "rename to stats", "directory"]
    assert count_open_files() <= before


def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a plain file"):
        write_atomic(pipe, b"x")
    assert pipe.is_fifo()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_neither_followed_nor_replaced(tmp_path: Path, *, there: bool) -> None:
    link = tmp_path / "link"
    link.symlink_to("file")
    if there:
        (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(OSError, match="not a plain file"):
        write_atomic(link, b"x")
    assert link.is_symlink()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["file", "link"][not there :]
    assert not there or (tmp_path / "file").read_bytes() == b"mine"


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "nowhere" / "f", b"x")
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_is_there_whole_and_nothing_else(tmp_path: Path) -> None:
    write_new(tmp_path / "f", b"data")
    assert (tmp_path / "f").read_bytes() == b"data"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("there", ["file", "directory", "link"])
def test_a_new_file_replaces_nothing(tmp_path: Path, there: str) -> None:
    path = tmp_path / "f"
    match there:
        case "file":
            path.write_bytes(b"old")
        case "directory":
            path.mkdir()
        case _:
            path.symlink_to(tmp_path / "nowhere")
    before = path.lstat()
    with pytest.raises(FileExistsError):
        write_new(path, b"new")
    assert path.lstat() == before
    assert [found.name for found in tmp_path.iterdir()] == ["f"]


def test_of_many_writers_of_a_new_file_one_wins(tmp_path: Path) -> None:
    path = tmp_path / "f"
    begun = Barrier(8)

    def write(name: bytes) -> bool:
        begun.wait()
        try:
            write_new(path, name * 1000)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, [bytes([65 + n]) for n in range(8)]))
    assert won.count(True) == 1
    assert path.read_bytes() == bytes([65 + won.index(True)]) * 1000


def test_a_lock_is_taken_once_and_ends_with_its_descriptor(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert [files.try_lock(first), files.try_lock(second), files.try_lock(first)] == [
        *(True, False, True)
    ]
    os.close(first)
    assert files.try_lock(second)
    os.close(second)
