"""The file under the writer: continued, shared, deleted, full, or not a file at all."""

import errno
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.traces import writer as module
from proctor.traces.trajectory import Chunk, load_trajectory
from proctor.traces.writer import TrajectoryWriter
from tests.unprivileged import unprivileged

HEADER = b'{"version": 1, "format": "aec-bench-trajectory"}\n'
ENTRY = b'{"role": "assistant", "step": 3, "content": "x"}\n'


def load(path: Path) -> Chunk:
    return load_trajectory(str(path), salvage=True)


def continue_with(path: Path, text: str = "after") -> bytes:
    """Open the file, write an entry; what the file then holds beyond what it held."""
    before = path.read_bytes()
    with TrajectoryWriter(path) as trace:
        trace.assistant(text)
    after = path.read_bytes()
    assert after.startswith(before)
    return after.removeprefix(before)


@pytest.mark.parametrize(
    ("before", "headers", "step"),
    [
        (b"", 1, 0),
        (b"\n\n", 1, 0),
        (HEADER, 0, 0),
        (HEADER + ENTRY, 0, 3),
        (ENTRY, 0, 3),
        (HEADER + ENTRY + b'{"role": "assistant", "step": 4, "con', 0, 3),
        (HEADER + ENTRY + b"\0\0\0garbage", 0, 3),
        (HEADER + ENTRY + b'{"role": "user", "step": 0}\n', 0, 3),
        (HEADER + ENTRY + b"{" * 5000, 0, 3),
        (HEADER + ENTRY.replace(b"3", b'"3"') + b"[]\n1\n", 0, 0),
        (b'{"version": 1, "for', 1, 0),
        (b'{"version": 1, "for\n', 1, 0),
        (b'{"version": 1, "for\n' + HEADER + ENTRY, 0, 3),
        (HEADER.replace(b"}", b', "timestamp": "x"}') + ENTRY, 0, 3),
        (HEADER.replace(b"\n", b"\r\n"), 0, 0),
        (b"\xef\xbb\xbf" + HEADER + ENTRY, 0, 3),
        (HEADER + ENTRY.rstrip(), 0, 3),
        (b'{"step": 3, "role": "user"}', 0, 3),
        (HEADER + ENTRY + b'{"step": 4, "role": "user"}', 0, 4),
        (HEADER + ENTRY + b'{"step": 4, "role": "user"}\0\0\0', 0, 4),
        (HEADER.rstrip(), 0, 0),
        (HEADER + b'{"step": -4, "role": "user"}\n', 0, 0),
        (HEADER + ENTRY + b'{"step": 9223372036854775808, "role": "user"}\n', 0, 3),
        (b"\0\0\0\0", 1, 0),
        (b"\0\0\n\0\0\n", 1, 0),
        (b"\0" * 5000 + b"\n" + ENTRY, 0, 3),
        (b"\0\0" + HEADER + ENTRY, 0, 3),
        (b"\0\0" + ENTRY, 0, 3),
        (b'\0\0{"role": "assis', 1, 0),
    ],
)
def test_a_file_is_continued_and_none_of_its_bytes_change(
    tmp_path: Path, before: bytes, headers: int, step: int
) -> None:
    path = tmp_path / "t"
    path.write_bytes(before)
    added = continue_with(path)
    is_torn = before and not before.endswith(b"\n")
    assert added.startswith(b"\n" if is_torn else b"{")
    *first, last = added.strip(b"\n").split(b"\n")
    assert len(first) == headers
    assert json.loads(last)["step"] == step


def test_a_file_is_continued_as_often_as_the_harness_dies(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for _ in range(3):
        with TrajectoryWriter(path) as trace:
            trace.new_step()
            trace.assistant("x")
        with path.open("ab") as file:
            file.write(b'{"role": "tor')
    found = load(path)
    assert [entry.step for entry in found.entries] == [1, 2, 3]
    assert [seen.code for seen in found.diagnostics] == ["garbage", "garbage", "torn-line"]


def test_the_last_step_is_found_behind_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(HEADER + ENTRY + b"x" * 9_000_000)
    assert json.loads(continue_with(path))["step"] == 3


@pytest.mark.parametrize(
    "content",
    [b"hello\n", b"hello", b'{"role": "user", "content": "x"}\n', b"[1]\n", b"\0\0hi", b"{}{}\n"],
)
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    sentence = f"{path}: line 1 is not of a trajectory; expected a header or an entry"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        TrajectoryWriter(path)
    assert path.read_bytes() == content


def test_entries_after_zero_bytes_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(b"\0" * 4096 + b"\n" + ENTRY)
    continue_with(path)
    found = load(path)
    assert [entry.step for entry in found.entries] == [3, 3]
    assert [(seen.line, seen.code) for seen in found.diagnostics if seen.is_problem] == [
        (1, "garbage")
    ]


def test_a_huge_file_of_zero_bytes_is_refused_and_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    path.touch()
    os.truncate(path, 1 << 38)
    monkeypatch.setattr(module, "_LONGEST_LINE", 1 << 20)
    with pytest.raises(ValueError, match="line 1 is not of a trajectory"):
        TrajectoryWriter(path)
    assert path.stat().st_size == 1 << 38


def count_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("kind", ["directory", "pipe", "socket", "nowhere", "under a file"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t"
    listener = socket.socket(socket.AF_UNIX)
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "socket":
            listener.bind(str(path))
        case "nowhere":
            path = path / "x" / "t"
        case "under a file":
            path.write_bytes(HEADER)
            path = path / "t"
    before = count_open_files()
    with pytest.raises(OSError, match=re.escape(repr(str(path)))):
        TrajectoryWriter(path)
    assert count_open_files() <= before
    listener.close()


@pytest.mark.parametrize("target", ["directory", "file"])
def test_what_may_not_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    path = tmp_path / "d" / "t"
    path.parent.mkdir()
    if target == "file":
        path.write_bytes(HEADER)
        path.chmod(0o444)
    path.parent.chmod(0o555)
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o755)
    with unprivileged(), pytest.raises(PermissionError):
        TrajectoryWriter("d/t")
    path.parent.chmod(0o755)


def test_a_full_disk_is_not_kept_from_the_harness() -> None:
    with pytest.raises(OSError, match="No space left") as failure:
        TrajectoryWriter("/dev/full")
    assert failure.value.errno == errno.ENOSPC
    with (
        TrajectoryWriter("/dev/full", header=False) as trace,
        pytest.raises(OSError, match="space"),
    ):
        trace.user("x")


def test_a_trace_may_be_thrown_away() -> None:
    with TrajectoryWriter("/dev/null", fsync=True) as trace:
        trace.user("x")
        assert trace.step == 0


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """A disk that is full at that size. Python ignores the signal that comes with it."""
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_after_a_full_disk_the_next_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        size = path.stat().st_size
        with files_no_larger_than(size + 50), pytest.raises(OSError, match="too large"):
            trace.user("lost" * 100)
        trace.user("three")
    found = load(path)
    assert [entry.content for entry in found.entries] == ["one", "three"]
    assert [(seen.line, seen.code) for seen in found.diagnostics] == [(3, "garbage")]


def test_a_line_that_another_writer_left_torn_takes_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        with path.open("ab") as other:
            other.write(b'{"role": "use')
        trace.user("two")
        trace.user("three")
    assert [entry.content for entry in load(path).entries] == ["one", "two", "three"]


def test_a_file_that_the_agent_empties_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path) as trace:
        trace.user("one")
        os.truncate(path, 0)
        trace.user("two")
    assert [entry.content for entry in load_trajectory(str(path)).entries] == ["two"]


def test_each_line_is_on_disk_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    path = tmp_path / "t"
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.stat().st_size))
    with TrajectoryWriter(path, fsync=True) as trace:
        trace.user("one")
        trace.user("two")
    sizes = [len(line) for line in path.read_bytes().splitlines(keepends=True)]
    assert synced == [sum(sizes[:1]), sum(sizes[:2]), sum(sizes)]


def test_a_line_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    write = os.write

    def count(fd: int, data: bytes) -> int:
        writes.append(len(data))
        return write(fd, data)

    with TrajectoryWriter(tmp_path / "t") as trace:
        monkeypatch.setattr(os, "write", count)
        trace.user("x" * 1_000_000)
    assert len(writes) == 1


def test_threads_share_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "t"
    with TrajectoryWriter(path) as trace:

        def work(name: str) -> None:
            for at in range(100):
                trace.user(f"{name}{at}")

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    said = [entry.content or "" for entry in load_trajectory(str(path)).entries]
    for name in "abcd":
        assert [text for text in said if text[0] == name] == [f"{name}{at}" for at in range(100)]


TWO = """
import sys
sys.path.insert(0, sys.argv[1])
import trajectory_writer
with trajectory_writer.TrajectoryWriter(sys.argv[2]) as trace:
    print("open", flush=True)
    sys.stdin.readline()
    for at in range(300):
        trace.tool_result(sys.argv[3], str(at) + "x" * (at * 997 % 30000))
"""


def test_processes_share_a_file(tmp_path: Path) -> None:
    (tmp_path / "trajectory_writer.py").write_bytes(Path(module.__file__).read_bytes())
    path = tmp_path / "t"
    command = [sys.executable, "-I", "-S", "-B", "-c", TWO, str(tmp_path), str(path)]
    children = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in "ab"
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == b"open\n"
    for child in children:
        assert child.stdin
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=30)
        assert child.returncode == 0
    found = load_trajectory(str(path), thorough=True)
    assert found.diagnostics == []
    assert len(found.headers) == 1
    for name in "ab":
        sizes = [len(entry.stdout or "") for entry in found.entries if entry.tool_name == name]
        assert sizes == [len(str(at)) + at * 997 % 30000 for at in range(300)]


# The usual place, which nobody chose


@pytest.mark.parametrize("is_named", [True, False])
def test_without_a_path_the_variable_names_the_file_and_its_directory_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    path = tmp_path / "not" / "there" / "trajectory.jsonl"
    monkeypatch.setattr(module, "DEFAULT_PATH", str(tmp_path / "elsewhere" if is_named else path))
    monkeypatch.setenv(module.VARIABLE, str(path) if is_named else "")
    with TrajectoryWriter() as trace:
        trace.user("x")
    assert [entry.content for entry in load(path).entries] == ["x"]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("below a file", "Not a directory"), ("a directory", "Is a directory"), ("other", "line 1")],
)
def test_an_agent_does_not_die_where_its_trace_cannot_be_written(
    tmp_path: Path, kind: str, reason: str
) -> None:
    path = tmp_path / "trajectory.jsonl"
    if kind == "a directory":
        path.mkdir()
    else:
        path.write_text("not a trajectory")
    place = path / "more.jsonl" if kind == "below a file" else path
    program = (
        "from trajectory_writer import TrajectoryWriter\n"
        "with TrajectoryWriter() as trace:\n"
        "    trace.user('x'); trace.new_step(); trace.assistant('y')\n"
        "print('the agent went on', trace.step)\n"
    )
    (tmp_path / "trajectory_writer.py").write_bytes(Path(module.__file__).read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, module.VARIABLE: str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "the agent went on 1\n")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{place}: no trace is written: ")


def test_lines_that_are_lost_later_are_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made" / "trajectory.jsonl"
    monkeypatch.setenv(module.VARIABLE, str(path))
    with TrajectoryWriter() as trace:
        path.unlink()
        path.parent.rmdir()
        for _ in range(3):
            trace.user("lost")
        path.parent.mkdir()
        trace.user("kept")
    assert [entry.content for entry in load(path).entries] == ["kept"]
    assert capsys.readouterr().err.count("lines are missing from the trace") == 1
