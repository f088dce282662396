"""A runner that is hurt while a trial is verified again: the score stands, and nothing is left."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.environments.sandbox.syscalls import mount, unmount
from tests.faults.site import Site, descendants, describe, interrupt, load, wait_until

SLEEPS = "echo 1 > /logs/verifier/reward.txt; exec sleep $PAUSE\n"
AGAIN = ("--command", "true", "--verify-again", 2, "--ve", "PAUSE=${PAUSE}")


def sleepers(runner: subprocess.Popen[str]) -> list[int]:
    return [pid for pid in descendants(runner.pid) if describe(pid).startswith("sleep 600")]


def begin_again(runner: subprocess.Popen[str]) -> None:
    """Wait until the first verification is over, and the next one runs."""
    wait_until(lambda: bool(sleepers(runner)), runner)
    (first,) = sleepers(runner)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: any(pid != first for pid in sleepers(runner)), runner)


def states_of(trial: Path) -> list[dict[str, object]]:
    states: list[dict[str, object]] = load(trial / "verify-again.json")["states"]
    return states


def test_a_runner_that_is_killed_meanwhile_leaves_nothing_and_the_trial_is_redone(
    site: Site,
) -> None:
    task = site.make_task("t", test=SLEEPS)
    with site.begun("-p", task, *AGAIN, PAUSE="600") as runner:
        begin_again(runner)
        runner.kill()
    (trial,) = site.trials()
    assert not (trial / "result.json").exists()
    assert (trial / "verifier" / "reward.txt").read_text() == "1\n"
    assert site.resume(PAUSE="0").code == 0
    assert site.rewards() == [1.0]
    (state,) = states_of(trial)
    assert (state["state"], state["flake_rate"], state["reason"]) == ("frozen", 0.0, None)
    assert (trial / "attempts" / "1" / "verifier" / "reward.txt").exists()
    assert [each["verifications"] for each in load(site.job / "flakes.json")["tasks"]] == [3]
    site.check_nothing_left()


def test_ctrl_c_meanwhile_keeps_the_score_and_resume_has_nothing_to_do(site: Site) -> None:
    task = site.make_task("t", test=SLEEPS)
    with site.begun("-p", task, *AGAIN, "--no-clean-room", PAUSE="600") as runner:
        begin_again(runner)
        ran = interrupt(runner)
    assert ran.code == 130, ran.err
    assert "Traceback" not in ran.err
    assert (site.rewards(), site.errors()) == ([1.0], [])
    (state,) = states_of(site.trials()[0])
    assert state["reason"] == "the run was stopped"
    site.check_nothing_left()
    resumed = site.resume(PAUSE="0")
    assert (resumed.code, "kept from before: 1 trial" in resumed.out) == (0, True)
    assert "not re-verified, or fewer times than requested: 1 trial" in resumed.out


def test_ctrl_c_in_the_clean_room_keeps_the_score(site: Site) -> None:
    task = site.make_task("t", test=SLEEPS)
    words = ("--command", "true", "--ve", "PAUSE=${PAUSE}")
    with site.begun("-p", task, *words, PAUSE="600") as runner:
        begin_again(runner)
        ran = interrupt(runner)
    assert (ran.code, site.rewards(), site.errors()) == (130, [1.0], []), ran.err
    found = load(site.trials()[0] / "findings.json")
    assert [each["message"] for each in found if each["code"] == "clean-room-skipped"] == [
        "the tests were not repeated in a clean room: the run was stopped"
    ]
    site.check_nothing_left()


@pytest.fixture
def disk(site: Site) -> Iterator[Path]:
    """A small disk for what sandboxes write."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place = site.top / "scratch"
    place.mkdir()
    mount("none", str(place), "tmpfs", options="size=16m,mode=700")
    site.disks.append(place)
    yield place
    unmount(str(place))


@pytest.mark.parametrize(("megabytes", "is_kept"), [(9, False), (2, True)])
def test_a_state_that_does_not_fit_twice_is_not_verified_again_and_keeps_its_score(
    site: Site, disk: Path, megabytes: int, is_kept: bool
) -> None:
    site.env = {"PROCTOR_SCRATCH": str(disk)}
    writes = f"head -c {megabytes}M /dev/urandom > /big"
    ran = site.run("-p", site.make_task("t"), "--command", writes, "--verify-again", 2)
    assert (ran.code, site.rewards(), site.errors()) == (0, [1.0], []), ran.err
    (state,) = states_of(site.trials()[0])
    assert state["state"] == ("frozen" if is_kept else None)
    said = "a copy may take half of the "
    assert (said in str(state["reason"]), said in ran.out) == (not is_kept, not is_kept)
    site.check_nothing_left()
