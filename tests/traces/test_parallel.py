"""Many files at once give what one after the other gives."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from proctor.errors import TraceError
from proctor.traces.parallel import map_paths
from proctor.traces.trajectory import read_chunks


def count(path: str) -> tuple[str, int, int]:
    entries = sum(len(chunk.entries) for chunk in read_chunks(path))
    return path, entries, os.getpid()


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    for number in range(40):
        lines = f'{{"step": {number}, "role": "user"}}\n' * number
        (tmp_path / f"{number}.jsonl").write_text(lines)
    return [str(tmp_path / f"{number}.jsonl") for number in range(40)]


def test_answers_come_in_the_order_of_the_files(paths: list[str]) -> None:
    answers = list(map_paths(count, paths, processes=2))
    assert [(path, entries) for path, entries, _ in answers] == list(
        zip(paths, range(40), strict=True)
    )
    assert os.getpid() not in {process for _, _, process in answers}


def test_little_is_read_without_another_process(paths: list[str]) -> None:
    assert {process for _, _, process in map_paths(count, paths)} == {os.getpid()}


def test_much_is_shared_out(tmp_path: Path) -> None:
    line = '{"step": 1, "role": "user", "content": "' + "x" * 1000 + '"}\n'
    for name in "ab":
        (tmp_path / name).write_text(line * 17_000)
    answers = list(map_paths(count, [str(tmp_path / "a"), str(tmp_path / "b")]))
    assert [entries for _, entries, _ in answers] == [17_000, 17_000]
    alone = len(os.sched_getaffinity(0)) == 1
    assert (os.getpid() in {process for _, _, process in answers}) == alone


def test_a_worker_s_error_is_the_caller_s(paths: list[str], tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.jsonl")
    with pytest.raises(TraceError, match="No such file"):
        list(map_paths(count, [*paths, missing], processes=2))


def test_no_files_no_answers() -> None:
    assert list(map_paths(count, [])) == []


SLEEPER = """
import os, sys, time
from proctor.traces.parallel import map_paths
def sleep(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
list(map_paths(sleep, sys.argv[1:], processes=2))
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_the_program(tmp_path: Path, how: signal.Signals) -> None:
    notes = [tmp_path / "a", tmp_path / "b"]
    program = subprocess.Popen([sys.executable, "-c", SLEEPER, *map(str, notes)])
    workers = [int(wait_for(partial(read_if_there, note))) for note in notes]
    program.send_signal(how)
    program.wait(10)
    for worker in workers:
        wait_for(partial(is_gone, worker))


def read_if_there(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def wait_for[Found](find: Callable[[], Found]) -> Found:
    for _ in range(200):
        if found := find():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about in ten seconds")


def is_gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return state.rpartition(")")[2].split()[0] == "Z"
