"""`proctor run` on a terminal, asked and interrupted; always as a child."""

import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.programs import command_line, environment, run_child
from tests.cli.test_output import on_a_terminal
from tests.cli.test_run import NULL, TASKS, WANTING, make_task

SLEEPER = ("-e", "null", "--agent-import-path", "tests.cli.agents:Sleeper")
STUBBORN = ("-e", "null", "--agent-import-path", "tests.cli.agents:Stubborn")
TALKER = ("-e", "null", "--agent-import-path", "tests.cli.agents:Talker")


@contextmanager
def running(jobs: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A run whose first agent has begun."""
    command = command_line("run", "-o", jobs, "--job-name", "job", *arguments)
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            while not list(jobs.glob("*/*/agent/began")):
                assert child.poll() is None, child.communicate()
                time.sleep(0.02)
            yield child
        finally:
            child.kill()


def test_ctrl_c_once_keeps_the_records_and_leaves_with_130(tmp_path: Path) -> None:
    with running(tmp_path, "-p", TASKS, *SLEEPER, "-n", "2") as child:
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "stopping: what runs is ended and recorded" in err
    assert "job: interrupted after" in out
    assert "\ninterrupted: 2 trials; `proctor resume` runs them again\n" in out
    assert "CancelledError" not in out + err
    assert f"  proctor resume {tmp_path / 'job'}" in out
    results = [json.loads(path.read_text()) for path in tmp_path.glob("job/*/result.json")]
    assert [one["exception_info"]["exception_type"] for one in results] == ["CancelledError"] * 2
    assert len(list(tmp_path.glob("job/*/record.json"))) == 2
    dry = json.loads(run_child("resume", tmp_path / "job", "--dry-run", "--json").out)
    assert dry["counts"] == {"keep": 0, "run": 1, "redo": 2}


def test_ctrl_c_twice_stops_at_once(tmp_path: Path) -> None:
    with running(tmp_path, "-p", TASKS, *STUBBORN, "-n", "1") as child:
        assert child.stderr is not None
        child.send_signal(signal.SIGINT)
        while "stopping" not in child.stderr.readline():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    dry = json.loads(run_child("resume", tmp_path / "job", "--dry-run", "--json").out)
    assert dry["counts"] == {"keep": 0, "run": 2, "redo": 1}


def test_the_result_line_of_an_interrupted_job_says_so(tmp_path: Path) -> None:
    with running(tmp_path, "-p", TASKS, *SLEEPER, "--result-line") as child:
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=60)
    assert child.returncode == 130
    line = json.loads(out.splitlines()[-1].removeprefix("BASE_BENCHMARK_RESULT="))
    assert (line["status"], line["score"], line["total"]) == ("failed", 0.0, 0)
    assert line["reason_code"] == "harbor_cancelled_error"


def test_what_an_agent_prints_is_not_taken_for_the_result(tmp_path: Path) -> None:
    ran = run_child("run", "-o", tmp_path, "-p", TASKS, *TALKER, "--result-line")
    lines = [line for line in ran.out.splitlines() if line.startswith("BASE_BENCHMARK_RESULT=")]
    assert (ran.code, len(lines)) == (0, 1)
    assert json.loads(lines[0].partition("=")[2])["total"] == 3


@pytest.mark.parametrize("no_color", [{}, {"NO_COLOR": "1"}])
def test_on_a_terminal_the_job_is_drawn_and_nothing_of_it_stays(
    tmp_path: Path, no_color: dict[str, str]
) -> None:
    seen = on_a_terminal(
        *("run", "-o", tmp_path, "--job-name", "nightly", "-p", TASKS, *NULL),
        TERM="xterm-256color",
        COLUMNS="80",
        LINES="24",
        **no_color,
    )
    assert "\x1b[?25l" in seen, "the cursor is hidden while it is drawn"
    assert "\x1b[?25h" in seen, "and shown again"
    report = seen.rpartition("\x1b[")[2]
    assert "nightly: done after" in report
    assert "nop__binary: 3 run, 3 scored" in report
    assert bool(re.search(r"\x1b\[(\d+;)*3\d", seen)) is not bool(no_color)


def test_a_dumb_terminal_gets_plain_lines(tmp_path: Path) -> None:
    seen = on_a_terminal("run", "-o", tmp_path, "-p", TASKS, *NULL, TERM="dumb")
    assert "\x1b" not in seen
    assert "[3/3]" in seen


@pytest.mark.parametrize(("answer", "n_jobs"), [("n\n", 0), ("y\n", 1), ("\n", 1)])
def test_on_a_terminal_the_person_is_asked(tmp_path: Path, answer: str, n_jobs: int) -> None:
    tasks = make_task(tmp_path / "tasks" / "one", **WANTING).parent
    leader, follower = pty.openpty()
    command = command_line("run", "-o", tmp_path / "jobs", "-p", tasks, *NULL)
    env = environment(PROCTOR_TEST_A="1", TERM="xterm")
    with subprocess.Popen(command, env=env, stdin=follower, stdout=follower, stderr=follower) as me:
        os.close(follower)
        seen = b""
        try:
            while data := os.read(leader, 65536):
                seen += data
                if seen.endswith(b"Proceed? [Y/n]: "):
                    os.write(leader, answer.encode())
        except OSError:  # Linux says so when the last writer has gone
            pass
    os.close(leader)
    assert b"PROCTOR_TEST_A  [environment.env]" in seen
    assert me.returncode == 0, seen
    assert len(list(tmp_path.glob("jobs/*"))) == n_jobs
