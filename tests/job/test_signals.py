"""Ctrl-C: once finishes the record-keeping, twice stops."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.job.jobs import load_json, make_tasks, resume, trial_dirs


@contextmanager
def runner(root: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.job.runner", *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(is_so: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert process.poll() is None, "the runner ended by itself"
        assert time.monotonic() < end, "it did not come to that in a minute"
        time.sleep(0.01)


def n_began(place: Path) -> int:
    return len(list(place.glob("*.began")))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_the_running_trials_are_written_down_and_no_other_begins(
    tmp_path: Path, root: Path, number: signal.Signals
) -> None:
    make_tasks(tmp_path / "set", ["a", "b"])
    with runner(root, str(tmp_path), "run", "Waiting", f"place={tmp_path}") as process:
        wait_for(lambda: n_began(tmp_path) == 2, process)
        process.send_signal(number)
        assert process.wait(60) == 130
    job = tmp_path / "jobs" / "job"
    assert n_began(tmp_path) == 2
    written = load_json(job / "result.json")
    assert written["finished_at"] is None
    assert written["n_total_trials"] == 6
    stats = written["stats"]
    assert (stats["n_completed_trials"], stats["n_cancelled_trials"]) == (2, 2)
    assert (stats["n_running_trials"], stats["n_pending_trials"]) == (0, 4)
    begun = [path for path in trial_dirs(job) if path.is_dir()]
    kinds = [load_json(path / "result.json")["exception_info"]["exception_type"] for path in begun]
    assert kinds == ["CancelledError", "CancelledError"]

    (tmp_path / "go").touch()
    names = [path.name for path in trial_dirs(job)]
    outcome = resume(job)
    assert [path.name for path in trial_dirs(job)] == names
    assert (outcome.counts.scored, outcome.counts.kept) == (6, 0)
    assert [(path / "attempts" / "1").is_dir() for path in trial_dirs(job)] == [
        path in begun for path in trial_dirs(job)
    ]
    assert load_json(job / "result.json")["finished_at"] is not None


def test_twice_stops_also_what_will_not_be_cancelled(tmp_path: Path, root: Path) -> None:
    make_tasks(tmp_path / "set", ["a"])
    with runner(root, str(tmp_path), "run", "Stubborn", f"place={tmp_path}") as process:
        wait_for(lambda: n_began(tmp_path) > 0, process)
        process.send_signal(signal.SIGINT)
        wait_for((tmp_path / "cancelled").exists, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert load_json(tmp_path / "jobs" / "job" / "result.json")["finished_at"] is None
    (tmp_path / "go").touch()
    assert resume(tmp_path / "jobs" / "job").counts.scored == 3


def test_one_that_will_not_be_cancelled_and_ends_is_counted(tmp_path: Path, root: Path) -> None:
    make_tasks(tmp_path / "set", ["a"])
    with runner(root, str(tmp_path), "run", "Stubborn", f"place={tmp_path}") as process:
        wait_for(lambda: n_began(tmp_path) > 0, process)
        process.send_signal(signal.SIGINT)
        wait_for((tmp_path / "cancelled").exists, process)
        (tmp_path / "go").touch()
        assert process.wait(60) == 130
    job = tmp_path / "jobs" / "job"
    written = load_json(job / "result.json")
    assert written["finished_at"] is None
    assert written["stats"]["n_pending_trials"] >= 1
    assert resume(job).counts.scored == 3
