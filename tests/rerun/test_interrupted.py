"""A rerun that is stopped, and one by an ordinary user."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proctor.job.job import run_job
from proctor.job.options import JobOptions
from proctor.job.watch import Watch
from proctor.rerun.from_job import load_job_trials
from proctor.rerun.rerunning import RerunOptions, Reruns, run_again
from tests.become_user import PERSON
from tests.cli.programs import command_line, environment
from tests.faults.site import PATIENCE_SEC, descendants, describe, wait_until
from tests.ordinary_user import ordinary_home, run_as_ordinary_user
from tests.rerun.jobs import (
    HONEST,
    digest_tree,
    edit_lines,
    only_trial,
    run_trial,
    scripted,
    write_task,
)


@pytest.fixture
def home() -> Iterator[Path]:
    with ordinary_home() as directory:
        yield directory


def test_ctrl_c_ends_a_rerun_and_nothing_of_the_audited_job_changes(tmp_path: Path) -> None:
    job = run_trial(tmp_path, scripted(tmp_path, HONEST))
    trace = only_trial(job) / "agent" / "trajectory.jsonl"
    edit_lines(trace, lambda line: "command" in line and line.update(command="exec sleep 600"))
    before = digest_tree(job)
    new = tmp_path / "new"
    words = command_line("audit", job, "--rerun", 1, "-o", new)
    with subprocess.Popen(
        words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as runner:
        try:
            wait_until(lambda: _sleeps(runner.pid), runner)
            runner.send_signal(signal.SIGINT)
            out, err = runner.communicate(timeout=PATIENCE_SEC)
        finally:
            runner.kill()
    assert runner.returncode == 130
    assert "Traceback" not in err
    assert "interrupted: 1 trial not run again" in out
    assert digest_tree(job) == before
    (result,) = new.glob("*/jobs/*/*/result.json")
    assert json.loads(result.read_text())["exception_info"]["exception_type"] == "CancelledError"


def test_ctrl_c_between_two_trials_tells_what_came_of_the_first(tmp_path: Path) -> None:
    job = run_trial(tmp_path, scripted(tmp_path, HONEST))
    shutil.copytree(only_trial(job), job / "task__second")
    trials = load_job_trials(str(job))
    told: list[int] = []
    (tmp_path / "new").mkdir()

    async def run() -> Reruns:
        task = asyncio.current_task()
        assert task is not None

        def interrupt(_: str) -> None:
            if told:
                task.cancel()

        return await run_again(trials, trials.names, make_wish(interrupt))

    def make_wish(began: Callable[[str], None]) -> RerunOptions:
        return RerunOptions(
            directory=tmp_path / "new",
            tasks=[],
            environment=None,
            run_job=lambda config, *_: run_job(JobOptions(config=config), Watch()),
            began=began,
            ended=lambda reruns: told.append(len(reruns)),
        )

    done = asyncio.run(run())
    assert (done.interrupted, [each.verdict for each in done.reruns]) == (True, ["reproduced"])
    assert told == [1]


def _sleeps(pid: int) -> bool:
    return any(describe(each).startswith("sleep 600") for each in descendants(pid))


def test_an_ordinary_user_runs_trials_again(home: Path) -> None:
    write_task(home / "task")
    script = home / "script.sh"
    script.write_text(HONEST)
    for path in [home, *home.rglob("*")]:
        if os.geteuid() == 0:
            os.chown(path, PERSON, PERSON)
    words = ("-p", "task", "-a", "scripted", "--ak", f"script={script}", "--job-name", "job")
    ran = run_as_ordinary_user("proctor", "run", *words, "--no-ledger", home=home)
    assert ran.code == 0, ran.err
    ran = run_as_ordinary_user("proctor", "audit", "jobs/job", "--rerun", 1, home=home)
    assert ran.code == 0, ran.out + ran.err
    assert "reward 1.0 again; 3 observations equal" in ran.out
