"""The file around the lines: what cannot be opened, what changes while it is read, what is huge."""

import json
import os
import threading
from pathlib import Path

import pytest

from proctor.errors import TraceError
from proctor.traces.trajectory import load_trajectory, read_chunks
from tests.unprivileged import unprivileged

USER = b'{"step": 0, "role": "user", "content": "go"}\n'
ANSWER = b'{"step": 1, "role": "assistant", "content": "done"}\n'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trajectory.jsonl"


def test_a_missing_file_is_an_error_and_not_an_empty_trace(trace: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        load_trajectory(str(trace))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="a directory; expected a file of lines"):
        load_trajectory(str(tmp_path))


def test_a_pipe_is_refused_and_not_waited_for(trace: Path) -> None:
    os.mkfifo(trace)
    with pytest.raises(TraceError, match="not a regular file"):
        load_trajectory(str(trace), salvage=True)


def test_a_device_is_refused_and_not_drained() -> None:
    with pytest.raises(TraceError, match="not a regular file"):
        load_trajectory("/dev/zero", salvage=True)


def test_a_name_that_cannot_be_one() -> None:
    with pytest.raises(TraceError, match="cannot be read: embedded null byte"):
        load_trajectory("a\0b")


def test_no_permission_is_said(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace.write_bytes(USER)
    trace.chmod(0)
    monkeypatch.chdir(trace.parent)
    with unprivileged(), pytest.raises(TraceError, match="cannot be read: Permission denied"):
        load_trajectory(trace.name)


def test_a_file_that_ends_a_chain_of_links_to_itself(trace: Path) -> None:
    trace.symlink_to(trace)
    with pytest.raises(TraceError, match="symbolic links"):
        load_trajectory(str(trace))


def test_a_line_of_a_hundred_megabytes(trace: Path) -> None:
    text = "x" * 100_000_000
    with trace.open("w") as file:
        file.write('{"step": 1, "role": "tool_result", "stdout": "')
        file.write(text)
        file.write('"}\n')
        file.write(ANSWER.decode())
    found = load_trajectory(str(trace))
    assert len(found.entries[0].stdout or "") == 100_000_000
    assert found.lines == [1, 2]


def test_lines_that_cross_the_pieces_of_reading(trace: Path) -> None:
    rows = [
        {"step": number, "role": "assistant", "content": f"{number}" * (number % 997)}
        for number in range(6000)
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert trace.stat().st_size > 3 << 20
    found = load_trajectory(str(trace))
    assert [entry.content for entry in found.entries] == [row["content"] for row in rows]
    assert found.lines == list(range(1, 6001))


def test_a_file_that_grows_while_it_is_read(trace: Path) -> None:
    trace.write_bytes(USER * 60_000)
    reading = read_chunks(str(trace), thorough=True)
    read = len(next(reading).entries)
    with trace.open("ab") as file:
        file.write(ANSWER)
    rest = list(reading)
    assert read + sum(len(chunk.entries) for chunk in rest) == 60_000
    assert [found.code for found in rest[-1].diagnostics] == ["file-grew"]


def test_a_half_written_line_is_waited_for_by_no_one_but_read_to_its_end(trace: Path) -> None:
    trace.write_bytes(USER * 60_000 + ANSWER[:20])
    reading = read_chunks(str(trace))
    read = len(next(reading).entries)
    with trace.open("ab") as file:
        file.write(ANSWER[20:] + USER)
    assert read + sum(len(chunk.entries) for chunk in reading) == 60_001


def test_a_file_that_shrinks_while_it_is_read(trace: Path) -> None:
    trace.write_bytes(USER * 100_000)
    reading = read_chunks(str(trace), salvage=True)
    next(reading)
    os.truncate(trace, 2_000_000)
    last = list(reading)[-1]
    assert [found.code for found in last.diagnostics] == ["file-shrank"]


def test_a_writer_that_never_stops_does_not_keep_the_reader(trace: Path) -> None:
    trace.write_bytes(USER * 1000)
    stop = threading.Event()

    def write() -> None:
        with trace.open("ab", buffering=0) as file:
            while not stop.is_set():
                file.write(USER)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = load_trajectory(str(trace))
    finally:
        stop.set()
        writer.join()
    assert len(found.entries) >= 1000


def test_memory_is_let_go_when_reading_is_given_up(trace: Path) -> None:
    trace.write_bytes(USER * 60_000)
    before = len(list(Path("/proc/self/fd").iterdir()))
    reading = read_chunks(str(trace))
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize("ended", [True, False])
def test_a_line_beyond_the_limit_is_stepped_over(trace: Path, ended: bool) -> None:
    long = b'{"step": 1, "role": "user", "content": "' + b"x" * 3_000_000 + b'"}'
    trace.write_bytes(USER + long + (b"\n" + ANSWER if ended else b""))
    chunks = list(read_chunks(str(trace), salvage=True, line_limit=1 << 20))
    seen = [found for chunk in chunks for found in chunk.diagnostics]
    assert [(found.code, found.line) for found in seen] == [("line-too-long", 2)]
    assert f"a line of {len(long) + ended:,} bytes" in seen[0].message
    lines = [line for chunk in chunks for line in chunk.lines]
    assert lines == ([1, 3] if ended else [1])
