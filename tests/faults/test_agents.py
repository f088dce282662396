"""Agents and tests that behave badly: bounded, recorded, and gone with their sandbox."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.environments.ghosts import leave_ghost
from tests.faults.memory import peak_mib
from tests.faults.site import PATIENCE_SEC, Site, load, wait_until

MOST_MIB = 250
"""More memory than a runner ever needs."""
IGNORES = "trap '' TERM INT HUP; echo here > /logs/agent/words.txt; while :; do sleep 1; done"


def test_a_daemon_of_the_tests_ends_with_its_sandbox(site: Site) -> None:
    leaves = "setsid sleep 601 & nohup sleep 602 > /dev/null 2>&1 &\n"
    task = site.make_task("t", test=f"{leaves}echo 1 > /logs/verifier/reward.txt\n")
    ran = site.run("-p", task, "--command", "true")
    assert (ran.code, site.rewards()) == (0, [1.0]), ran.err
    site.check_nothing_left()


@pytest.mark.parametrize(
    "agent",
    [
        "exec 0<&- 1>&- 2>&-; true",
        "python3 -c 'import os; os.closerange(0, 4096)'",
        "set -m; sleep 600 & disown; true",
        "python3 -c 'import os; os.setsid() if os.getpid() != os.getpgid(0) else os.fork()'",
    ],
)
def test_an_agent_that_closes_files_or_leaves_its_group_is_verified(site: Site, agent: str) -> None:
    task = site.make_task("t")
    ran = site.run("-p", task, "--command", agent)
    assert (ran.code, site.rewards()) == (0, [1.0]), ran.err
    site.check_nothing_left()


def test_an_agent_that_ignores_signals_is_dead_when_its_time_is_over(site: Site) -> None:
    task = site.make_task("t", toml="[agent]\ntimeout_sec = 1.0\n")
    began = time.monotonic()
    ran = site.run("-p", task, "--command", IGNORES)
    assert time.monotonic() - began < PATIENCE_SEC / 2
    assert site.errors()[0][0] == "AgentTimeoutError", ran.err
    assert site.rewards() == [1.0]
    assert "agent-still-busy" not in site.findings()
    assert (site.trials()[0] / "agent" / "words.txt").read_text() == "here\n"
    site.check_nothing_left()


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the ghost is for x86-64")
def test_a_process_whose_first_thread_ended_is_found(site: Site) -> None:
    ran = site.run("-p", site.make_task("t"), "--command", leave_ghost("/tmp/ghost"))  # noqa: S108
    assert ran.code == 0, ran.err
    found = {each["code"]: each for each in load(site.trials()[0] / "findings.json")}
    (left,) = found["agent-still-busy"]["detail"]["processes"]
    assert (left["command"], left["executable"]) == ("/tmp/ghost", "/tmp/ghost")  # noqa: S108
    site.check_nothing_left()


def test_what_a_failed_attempt_planted_stays_a_finding_of_the_trial(site: Site) -> None:
    words = ("--agent-import-path", "tests.faults.agents:Planter", "-r", 1)
    ran = site.run("-p", site.make_task("t"), *words)
    assert (ran.code, site.rewards(), site.errors()) == (0, [1.0], []), ran.err
    (trial,) = site.trials()
    (first,) = find_planted(trial / "attempts" / "1")
    assert find_planted(trial) == [
        {
            **first,
            "message": f"attempt 1: {first['message']}",
            "detail": {**first["detail"], "attempt": 1},
        }
    ]
    assert "reward-planted" in ran.out


def find_planted(place: Path) -> list[Any]:
    """The findings of rewards that were planted."""
    found = load(place / "findings.json")
    return [each for each in found if each["code"] == "reward-planted"]


@pytest.mark.parametrize("n_mib", [64, pytest.param(1024, marks=pytest.mark.soak)])
def test_what_a_command_prints_without_end_is_kept_at_both_ends_and_memory_stays_flat(
    site: Site, n_mib: int
) -> None:
    task = site.make_task("t")
    prints = f"head -c {n_mib}M /dev/zero | tr '\\0' x"
    with site.begun("-p", task, "--command", prints) as runner:
        peak = watch_peak(runner)
    assert (runner.returncode, site.rewards()) == (0, [1.0])
    kept = (site.trials()[0] / "agent" / "command.txt").stat().st_size
    assert abs(kept - (16 << 20)) < 1 << 20
    assert "output-cut" in site.findings()
    assert peak < MOST_MIB
    site.check_nothing_left()


@pytest.mark.parametrize("n_mib", [64, pytest.param(1024, marks=pytest.mark.soak)])
def test_what_an_agent_is_told_of_an_endless_output_is_cut(site: Site, n_mib: int) -> None:
    task = site.make_task("t")
    words = ("--agent-import-path", "tests.faults.agents:Printer", "--ak", f"n_bytes={n_mib << 20}")
    with site.begun("-p", task, *words) as runner:
        peak = watch_peak(runner)
    assert (runner.returncode, site.rewards()) == (0, [1.0])
    assert "output-cut" in site.findings()
    length = int((site.trials()[0] / "agent" / "length.txt").read_text())
    assert 16 << 20 <= length < 17 << 20
    assert peak < MOST_MIB
    site.check_nothing_left()


def watch_peak(runner: subprocess.Popen[str]) -> float:
    """The most memory that a runner ever had, in MiB."""
    peaks = [0.0]

    def look() -> bool:
        peaks.append(peak_mib(runner.pid))
        return runner.poll() is not None

    wait_until(look)
    return max(peaks)


@pytest.mark.parametrize("n_files", [3_000, pytest.param(150_000, marks=pytest.mark.soak)])
def test_many_files_of_an_agent_are_collected_up_to_a_number(site: Site, n_files: int) -> None:
    task = site.make_task("t")
    makes = (
        "mkdir /logs/agent/many && cd /logs/agent/many && "
        f"python3 -c 'for n in range({n_files}): open(str(n), \"w\").close()'"
    )
    with site.begun("-p", task, "--command", makes) as runner:
        peak = watch_peak(runner)
    assert (runner.returncode, site.rewards()) == (0, [1.0])
    found = sum(1 for _ in (site.trials()[0] / "agent" / "many").iterdir())
    assert found <= 100_000
    assert ("files-refused" in site.findings()) == (n_files > 100_000)
    assert found == n_files or n_files > 100_000
    assert peak < MOST_MIB
    site.check_nothing_left()


def test_a_huge_file_with_nothing_in_it_is_not_collected(site: Site) -> None:
    task = site.make_task("t")
    sparse = "truncate -s 10G /logs/agent/huge; echo words > /logs/agent/words.txt"
    ran = site.run("-p", task, "--command", sparse)
    assert (ran.code, site.rewards()) == (0, [1.0]), ran.err
    trial = site.trials()[0]
    assert (trial / "agent" / "words.txt").read_text() == "words\n"
    assert not (trial / "agent" / "huge").exists()
    (found,) = [one for one in load(trial / "findings.json") if one["code"] == "files-refused"]
    assert "huge" in found["message"]
    site.check_nothing_left()
