"""Signals at awkward moments, streams that go away: recorded, and nothing is left."""

import fcntl
import os
import signal
import subprocess
import termios
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.faults.site import (
    PATIENCE_SEC,
    Site,
    descendants,
    describe,
    interrupt,
    load,
    wait_until,
)

SLEEP = "exec sleep 600\n"


def is_asleep(runner: subprocess.Popen[str]) -> bool:
    return any(describe(pid).startswith("sleep 600") for pid in descendants(runner.pid))


def check_cancelled(site: Site) -> None:
    """The one trial is written down as cancelled, and nothing else is left of it."""
    assert [kind for kind, _ in site.errors()] == ["CancelledError"]
    written = load(site.job / "result.json")
    assert (written["finished_at"], written["stats"]["n_cancelled_trials"]) == (None, 1)
    site.check_nothing_left()


@pytest.mark.parametrize("where", ["build", "agent", "verify"])
def test_ctrl_c_ends_whatever_phase_is_on(site: Site, where: str) -> None:
    task = site.make_task(
        "t",
        dockerfile="RUN sleep 600\n" if where == "build" else "",
        test=SLEEP if where == "verify" else "",
    )
    with site.begun("-p", task, "--command", SLEEP if where == "agent" else "true") as runner:
        wait_until(lambda: is_asleep(runner), runner)
        ran = interrupt(runner)
    assert ran.code == 130, ran.err
    assert "Traceback" not in ran.err
    check_cancelled(site)
    # Half of a build is no layer.
    layers = [path for path in (site.top / "cache").glob("layers/*") if path.is_dir()]
    assert where != "build" or not [path for path in layers if (path / "root").exists()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_runner_that_is_told_to_end_keeps_its_records(site: Site, number: signal.Signals) -> None:
    task = site.make_task("t")
    with site.begun("-p", task, "--command", SLEEP) as runner:
        wait_until(lambda: is_asleep(runner), runner)
        ran = interrupt(runner, number)
    assert ran.code == 130, ran.err
    check_cancelled(site)


def test_a_closed_terminal_ends_the_job_with_its_records(site: Site) -> None:
    task = site.make_task("t")
    ours, theirs = os.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with site.begun_as(
        ("-p", task, "--command", SLEEP), preexec_fn=take_terminal, **streams
    ) as runner:
        os.close(theirs)
        drain(ours, lambda: is_asleep(runner))
        os.close(ours)
        assert runner.wait(PATIENCE_SEC) == 130
    check_cancelled(site)


def take_terminal() -> None:
    """Make the terminal that is stdin this process's own; a closed one then sends SIGHUP."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def drain(terminal: int, is_so: Callable[[], bool]) -> None:
    """Read what is drawn until something holds: a full terminal would stop its writer."""
    os.set_blocking(terminal, False)

    def look() -> bool:
        with suppress(BlockingIOError):
            os.read(terminal, 1 << 16)
        return is_so()

    wait_until(look)


def test_ctrl_c_for_the_whole_group_is_one_for_the_runner(site: Site) -> None:
    task = site.make_task("t")
    with site.begun("-p", task, "--command", SLEEP) as runner:
        wait_until(lambda: is_asleep(runner), runner)
        os.killpg(runner.pid, signal.SIGINT)
        assert runner.wait(PATIENCE_SEC) == 130
    check_cancelled(site)


def test_a_reader_that_goes_away_ends_no_job(site: Site) -> None:
    task = site.make_task("t")
    with site.begun("-p", task, "--command", "true") as runner:
        assert runner.stdout is not None
        assert runner.stderr is not None
        runner.stdout.close()
        runner.stderr.close()
        assert runner.wait(PATIENCE_SEC) == 0
    assert site.rewards() == [1.0]
    site.check_nothing_left()


def close_streams() -> None:
    for number in range(3):
        os.close(number)


def test_a_runner_without_any_stream_does_its_work(site: Site) -> None:
    task = site.make_task("t")
    none = {"stdin": None, "stdout": None, "stderr": None}
    with site.begun_as(
        ("-p", task, "--command", "true"), preexec_fn=close_streams, **none
    ) as runner:
        assert runner.wait(PATIENCE_SEC) == 0
    assert site.rewards() == [1.0]
    site.check_nothing_left()
