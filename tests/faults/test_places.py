"""Directories that are closed, or gone, or go away while they are needed."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.faults.site import (
    PATIENCE_SEC,
    Site,
    descendants,
    describe,
    wait_until,
)
from tests.ordinary_user import ordinary_home, run_as_ordinary_user

WAITS = ("--command", 'test -e /go || sleep "$PAUSE"; true', "--ae", "PAUSE=${PAUSE}")


def sleepers(runner: subprocess.Popen[str]) -> list[int]:
    return [pid for pid in descendants(runner.pid) if describe(pid).startswith("sleep 600")]


def end_sleep(runner: subprocess.Popen[str]) -> str:
    """Let the agent go on, and wait for the end of the job; what was said on stderr."""
    for pid in sleepers(runner):
        os.kill(pid, signal.SIGKILL)
    return runner.communicate(timeout=PATIENCE_SEC)[1]


def start_first(site: Site, names: str = "ab") -> tuple[object, ...]:
    """Words for a job whose first trial waits, one at a time; not when it is run again."""
    for name in names:
        site.make_task(name, dockerfile="" if name == names[0] else "RUN touch /go\n")
    return ("-p", site.top / "tasks", *WAITS, "-n", 1)


def test_a_task_that_vanishes_before_its_trial_is_an_error_of_it_alone(site: Site) -> None:
    words = start_first(site, "abc")
    with site.begun(*words, PAUSE="600") as runner:
        wait_until(lambda: bool(sleepers(runner)), runner)
        shutil.rmtree(site.top / "tasks" / "b")
        err = end_sleep(runner)
    assert runner.returncode == 3, err
    assert "Traceback" not in err
    assert site.rewards() == [1.0, None, 1.0]
    ((_, message),) = site.errors()
    assert str(site.top / "tasks" / "b") in message
    site.check_nothing_left()


def test_a_trial_whose_directory_is_removed_is_errored_and_the_rest_runs(site: Site) -> None:
    words = start_first(site)
    with site.begun(*words, PAUSE="600") as runner:
        wait_until(lambda: bool(sleepers(runner)), runner)
        shutil.rmtree(site.trials()[0])
        err = end_sleep(runner)
    assert runner.returncode in (0, 3), err
    assert "Traceback" not in err
    ((kind, message),) = site.errors()
    assert kind == "TrialError"
    assert f"{site.trials()[0]}: removed while the trial ran" in message
    assert site.rewards()[1] == 1.0
    ran = site.proctor("resume", site.job, "--also", "TrialError", PAUSE="0")
    assert (ran.code, site.rewards(), site.errors()) == (0, [1.0, 1.0], []), ran.err
    site.check_nothing_left()


def test_a_job_whose_directory_is_removed_stops_with_a_sentence(site: Site) -> None:
    words = start_first(site)
    with site.begun(*words, PAUSE="600") as runner:
        wait_until(lambda: bool(sleepers(runner)), runner)
        site.job.rename(site.jobs / "away")
        err = end_sleep(runner)
    assert runner.returncode == 2, err
    assert "Traceback" not in err
    assert f"{site.job}: the job's directory was removed while the job runs; restore it" in err
    # What the running trial made anew is no job.
    assert not [path for path in site.job.glob("*") if path.is_file()]
    shutil.rmtree(site.job, ignore_errors=True)
    (site.jobs / "away").rename(site.job)
    ran = site.resume(PAUSE="0")
    assert (ran.code, site.rewards()) == (0, [1.0, 1.0]), ran.err
    site.check_nothing_left()


@pytest.mark.parametrize("value", ["/nonexistent/tmp", "/proc"])
def test_without_a_directory_for_temporary_files_everything_works(site: Site, value: str) -> None:
    task = site.make_task("t")
    ran = site.run("-p", task, "--command", "true", TMPDIR=value)
    assert (ran.code, site.rewards()) == (0, [1.0]), ran.err
    site.check_nothing_left()


def test_a_working_directory_that_is_gone_is_a_sentence_or_no_matter(site: Site) -> None:
    task = site.make_task("t")
    gone = site.top / "gone"
    gone.mkdir()

    def lose_directory() -> None:
        os.chdir(gone)
        gone.rmdir()

    with site.begun_as(("-p", task, "--command", "true"), preexec_fn=lose_directory) as runner:
        _, err = runner.communicate(timeout=PATIENCE_SEC)
    assert "Traceback" not in err
    assert runner.returncode in (0, 2), err


def test_a_jobs_directory_that_is_a_file_is_refused(site: Site) -> None:
    task = site.make_task("t")
    site.jobs.write_text("no directory\n")
    ran = site.run("-p", task, "--command", "true")
    assert ran.code == 2
    assert f"{site.jobs}: a file; expected a directory" in ran.err
    assert "Traceback" not in ran.err


def test_files_of_a_task_that_cannot_be_read_are_named(site: Site) -> None:
    task = site.make_task("t")
    with ordinary_home() as home:
        there = Path(shutil.copytree(task, home / "t"))
        for path in (there, *there.rglob("*")):
            path.chmod(0o755)
        (there / "tests" / "test.sh").chmod(0)
        ran = run_as_ordinary_user("proctor", "run", "-p", "t", "--command", "true", home=home)
    assert ran.code in (2, 3)
    assert "test.sh" in ran.err
    assert "Permission denied" in ran.err
    assert "Traceback" not in ran.err
