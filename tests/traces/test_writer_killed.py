"""A harness that is killed at any moment loses no line it had written.

A real process writes with the file that `proctor trace writer` prints, started so that it can
import nothing but the standard library. It is killed with SIGKILL at random points. After each line
it says so in a second file: whatever it said must be there, and at most one line more.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from proctor.cli.trace.writer import command
from proctor.traces.trajectory import load_trajectory
from proctor.traces.writer import TrajectoryWriter

# Forks a writer for each line of its input, says its id, and waits for its end. The writer ends by
# itself after some seconds, should nobody kill it. Most lines are short; some take long to write.
FOREMAN = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import trajectory_writer

def size(at):
    return 2_000_000 if at % 7 == 3 else at * 37 % 500

def work(path, said):
    signal.alarm(20)
    with trajectory_writer.TrajectoryWriter(path) as trace:
        for at in range(1_000_000):
            trace.new_step()
            trace.assistant(f"{at} " + "x" * size(at))
            os.write(said, b"%d\\n" % at)

for line in sys.stdin:
    path = line.rstrip("\\n")
    said = os.open(path + ".said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    child = os.fork()
    if child == 0:
        try:
            work(path, said)
        finally:
            os._exit(1)
    os.close(said)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def size(at: int) -> int:
    """The length of the text of a line, as the foreman's writers make it."""
    return 2_000_000 if at % 7 == 3 else at * 37 % 500


@contextmanager
def foreman(directory: Path) -> Iterator[subprocess.Popen[str]]:
    written = command.main(["-o", str(directory / "trajectory_writer.py")], standalone_mode=False)
    assert written == 0
    line = [sys.executable, "-I", "-S", "-B", "-c", FOREMAN, str(directory)]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process


def kill_a_writer(process: subprocess.Popen[str], path: Path, seconds: float) -> None:
    """Let a writer work for a while and kill it."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{path}\n")
    process.stdin.flush()
    child = int(process.stdout.readline())
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    assert int(process.stdout.readline()) == signal.SIGKILL


@dataclass
class Tally:
    """What many kills came to."""

    lines: int = 0
    """Lines of which a writer had said that they are written."""
    torn: int = 0
    """Files that ended inside a line."""


def check_nothing_is_lost(path: Path, tally: Tally) -> None:
    """Hold the file against what the writer said."""
    said = Path(f"{path}.said").read_text().split()
    data = path.read_bytes() if path.exists() else b""
    whole, _, torn = data.rpartition(b"\n")
    written = [json.loads(line) for line in whole.split(b"\n")[1:]]
    assert len(said) <= len(written) <= len(said) + 1
    for at, row in enumerate(written):
        assert (row["step"], row["content"]) == (at + 1, f"{at} " + "x" * size(at))
    if data:
        salvaged = load_trajectory(str(path), salvage=True)
        assert [entry.step for entry in salvaged.entries] == [row["step"] for row in written]
        assert [seen.code for seen in salvaged.diagnostics] == (["torn-line"] if torn else [])
        check_it_can_be_continued(path, data, len(written))
    tally.lines += len(said)
    tally.torn += bool(torn)


def check_it_can_be_continued(path: Path, data: bytes, steps: int) -> None:
    with TrajectoryWriter(path) as trace:
        assert trace.new_step() == steps + 1
        trace.assistant("after")
    after = path.read_bytes()
    assert after.startswith(data)
    assert json.loads(after.rstrip(b"\n").rpartition(b"\n")[2])["content"] == "after"
    assert len(load_trajectory(str(path), salvage=True).entries) == steps + 1


def kill_writers(directory: Path, times: int, seed: int) -> Tally:
    """Kill that many writers, and look after each."""
    chance = random.Random(seed)
    tally = Tally()
    with foreman(directory) as process:
        for number in range(times):
            path = directory / f"{number}.jsonl"
            kill_a_writer(process, path, chance.uniform(0, 0.03))
            check_nothing_is_lost(path, tally)
            path.unlink(missing_ok=True)
    return tally


def test_no_flushed_line_is_lost_in_50_kills(tmp_path: Path) -> None:
    assert kill_writers(tmp_path, 50, seed=3).lines > 50


@pytest.mark.soak
def test_no_flushed_line_is_lost_in_500_kills(tmp_path: Path) -> None:
    tally = kill_writers(tmp_path, 500, seed=4)
    assert tally.lines > 500
    assert tally.torn > 0, "no kill came in the middle of a line"
