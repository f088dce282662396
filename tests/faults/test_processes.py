"""Processes that a job rests on and that somebody kills: an errored trial, and the job goes on."""

import os
import shutil
import signal
import subprocess

import pytest

from tests.faults.site import (
    PATIENCE_SEC,
    Site,
    descendants,
    describe,
    find_inits,
    find_zygote,
    wait_until,
)

WAITS = ("--command", "echo words > /logs/agent/words.txt; test -e /go || exec sleep 600")
"""An agent that never ends; where the task's image has /go, it ends at once."""


def make_tasks(site: Site, *, n_waiting: int, n_quick: int) -> tuple[object, ...]:
    """Tasks in the order of their names: those whose agent waits, then the others."""
    for n in range(n_waiting):
        site.make_task(f"a{n}")
    for n in range(n_quick):
        site.make_task(f"b{n}", dockerfile="RUN touch /go\n")
    return ("-p", site.top / "tasks", *WAITS, "-n", n_waiting)


def n_asleep(runner: subprocess.Popen[str]) -> int:
    """How many agents wait."""
    return sum(describe(pid).startswith("sleep 600") for pid in descendants(runner.pid))


def check_evidence(site: Site) -> None:
    """What each agent wrote is in its trial, also where nobody was left to fetch it."""
    for trial in site.trials():
        assert (trial / "agent" / "words.txt").read_text() == "words\n"


def test_a_killed_zygote_ends_its_trials_and_later_ones_get_another(site: Site) -> None:
    words = make_tasks(site, n_waiting=2, n_quick=2)
    with site.begun(*words) as runner:
        wait_until(lambda: n_asleep(runner) == 2, runner)
        zygote = find_zygote(runner.pid)
        assert zygote is not None
        os.kill(zygote, signal.SIGKILL)
        _, err = runner.communicate(timeout=PATIENCE_SEC)
    assert runner.returncode == 3, err
    assert "Traceback" not in err
    assert site.rewards() == [None, None, 1.0, 1.0]
    kinds = {kind for kind, _ in site.errors()}
    assert (len(site.errors()), kinds) == (2, {"SandboxError"})
    for _, message in site.errors():
        assert message.endswith("the process that its PID 1 was forked from is gone")
    check_evidence(site)
    site.check_nothing_left()


def test_a_killed_sandbox_errs_its_own_trial_alone(site: Site) -> None:
    words = make_tasks(site, n_waiting=1, n_quick=2)
    # An agent that can end its sandbox must not get another attempt by it.
    with site.begun(*words, "-r", 1) as runner:
        wait_until(lambda: n_asleep(runner) == 1, runner)
        (init,) = find_inits(runner.pid)
        os.kill(init, signal.SIGKILL)
        _, err = runner.communicate(timeout=PATIENCE_SEC)
    assert runner.returncode == 3, err
    assert site.rewards() == [None, 1.0, 1.0]
    ((kind, message),) = site.errors()
    assert kind == "SandboxDiedError"
    assert "its PID 1 was killed: it was stopped from outside, or memory ran out" in message
    check_evidence(site)
    site.check_nothing_left()


def test_a_task_that_runs_out_of_memory_is_errored_and_the_job_goes_on(site: Site) -> None:
    site.make_task("a", toml="memory_mb = 64\n")
    site.make_task("b", toml="memory_mb = 64\n", dockerfile="RUN touch /go\n")
    eats = "test -e /go || exec python3 -c 'x = bytearray(300 << 20); print(len(x))'"
    ran = site.run("-p", site.top / "tasks", "--command", eats, "-n", 1)
    assert site.rewards()[1] == 1.0, ran.err
    ((kind, message),) = site.errors()
    # The kernel chooses whom it kills: the agent, or PID 1 and the whole sandbox with it.
    if kind == "NonZeroAgentExitCodeError":
        assert "137" in message
    else:
        assert (kind, "because memory ran out" in message) == ("SandboxDiedError", True)
    site.check_nothing_left()


@pytest.mark.skipif(shutil.which("slirp4netns") is None, reason="slirp4netns is not installed")
def test_a_killed_network_helper_is_an_error_of_its_trial(site: Site) -> None:
    task = site.make_task("t")
    (task / "task.toml").write_text('[environment]\nnetwork_mode = "public"\n')
    with site.begun("-p", task, "--command", "sleep 2") as runner:
        wait_until(lambda: is_connected(runner), runner)
        for helper in find_helpers(runner):
            os.kill(helper, signal.SIGKILL)
        _, err = runner.communicate(timeout=PATIENCE_SEC)
    assert "Traceback" not in err
    assert site.errors() == [
        (
            "SandboxError",
            "slirp4netns, which connected the sandbox to the network, ended with -9 while the "
            "sandbox ran: from then on there was no network",
        )
    ]
    site.check_nothing_left()


def is_connected(runner: subprocess.Popen[str]) -> bool:
    """Whether the agent is at work, which it is after the network is up."""
    return any(describe(pid).startswith("sleep 2") for pid in descendants(runner.pid))


def find_helpers(runner: subprocess.Popen[str]) -> list[int]:
    return [pid for pid in descendants(runner.pid) if "slirp4netns" in describe(pid)]


def test_the_second_runner_of_a_job_is_refused(site: Site) -> None:
    words = make_tasks(site, n_waiting=1, n_quick=0)
    with site.begun(*words) as runner:
        wait_until(lambda: n_asleep(runner) == 1, runner)
        for second in (site.run(*words), site.resume()):
            assert second.code == 2
            assert f"process {runner.pid} is running this job" in second.err
        assert n_asleep(runner) == 1
        runner.send_signal(signal.SIGINT)
        runner.communicate(timeout=PATIENCE_SEC)
    assert runner.returncode == 130
    site.check_nothing_left()
