"""`--on slurm` on a real Slurm of one node, as an ordinary user, without Docker. In `make soak`."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.drivers import TASK, TEST, Ran, finish
from tests.cluster.ray_cluster import (
    find_below,
    kill_all,
    read_command,
    read_processes,
    wait_until,
)
from tests.cluster.slurm_cluster import SCRATCH, SlurmCluster, install
from tests.ordinary_user import command_line, environment, give, ordinary_home

pytestmark = pytest.mark.soak
SIZES = ("--slurm-arg=--cpus-per-task=2", "--slurm-arg=--mem=3000")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    if os.geteuid() != 0:
        pytest.skip("only root starts Slurm")
    if find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'proctor[ray]'")
    if not install():
        pytest.skip("Slurm and munge cannot be installed")
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp") as place:
        cluster = SlurmCluster(Path(place))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


@dataclass
class Person:
    """An ordinary user with tasks in her home."""

    slurm: SlurmCluster
    home: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def make_task(self, name: str) -> None:
        task = self.home / "tasks" / name
        files = {
            "task.toml": TASK,
            "instruction.md": f"Do {name}.\n",
            "environment/Dockerfile": "FROM scratch\n",
            "tests/test.sh": TEST,
        }
        for path, text in files.items():
            (task / path).parent.mkdir(parents=True, exist_ok=True)
            (task / path).write_text(text)
        give(self.home / "tasks", task, *task.rglob("*"))

    def start(self, *words: object) -> subprocess.Popen[str]:
        driver = subprocess.Popen(
            command_line(sys.executable, "-m", "proctor", *words),
            cwd=self.home,
            env=environment(self.home, **self.slurm.variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(driver)
        return driver

    def stop(self) -> None:
        """End what a failed test left."""
        for driver in self.started:
            if driver.poll() is None:
                kill_all(find_below(driver.pid))
                driver.communicate()
        for job in self.slurm.find_jobs().splitlines():
            self.slurm.ask("scancel", job.split()[0])
        wait_until(lambda: self.slurm.find_jobs() == "")

    def start_run(self, name: str, *words: object) -> subprocess.Popen[str]:
        given = ("run", "-p", "tasks", "--job-name", name, "--on", "slurm", *SIZES)
        return self.start(*given, *words)

    def results(self, name: str) -> list[Any]:
        found = sorted((self.home / "jobs" / name).glob("*__*/result.json"))
        return [json.loads(path.read_text()) for path in found]

    def rewards(self, name: str) -> list[float | None]:
        found = [each["verifier_result"] or {} for each in self.results(name)]
        return [each.get("rewards", {}).get("reward") for each in found]


@pytest.fixture
def person(slurm: SlurmCluster) -> Iterator[Person]:
    with ordinary_home() as home:
        made = Person(slurm, home)
        for name in ("one", "two"):
            made.make_task(name)
        yield made
        made.stop()


def number_of(ran: Ran) -> str:
    return ran.err.partition("Slurm job ")[2].partition(" ")[0]


def find_asleep(seconds: int) -> list[int]:
    """Agents that sleep for so long."""
    asleep = [pid for pid, (_, name) in read_processes().items() if name == "sleep"]
    return [pid for pid in asleep if str(seconds) in read_command(pid)]


def check_nothing_left(slurm: SlurmCluster, job: str) -> None:
    wait_until(lambda: slurm.find_jobs() == "")
    assert slurm.find_left(job) == []
    assert not Path(f"{SCRATCH}{job}").exists()


def test_a_job_runs_in_an_allocation_and_leaves_nothing(person: Person) -> None:
    ran = finish(person.start_run("job", "--command", "touch /tmp/done", "--json"))
    assert ran.code == 0, ran.err
    assert person.rewards("job") == [1, 1]
    # What the run prints on stdout is what the command in the allocation prints there.
    assert json.loads(ran.out)["job"] == "job"
    check_nothing_left(person.slurm, number_of(ran))
    assert list((person.home / ".cache/proctor/slurm").iterdir()) == []


def test_two_pilots_on_one_machine_do_not_collide(person: Person) -> None:
    both = [person.start_run(name, "--command", "touch /tmp/done") for name in ("a", "b")]
    assert [finish(each).code for each in both] == [0, 0]
    assert person.rewards("a") == person.rewards("b") == [1, 1]


def test_ctrl_c_ends_the_job_and_resume_continues_it(person: Person) -> None:
    driver = person.start_run("job", "--command", "sleep 4711", "-n", "2")
    wait_until(lambda: driver.poll() is not None or len(find_asleep(4711)) == 2, 120)
    driver.send_signal(signal.SIGINT)
    wait_until(lambda: find_asleep(4711) == [])
    ran = finish(driver)
    assert ran.code == 130, ran.err
    check_nothing_left(person.slurm, number_of(ran))
    assert {each["exception_info"]["exception_type"] for each in person.results("job")} == {
        "CancelledError"
    }
    resumed = person.start("resume", "jobs/job", "--on", "slurm", *SIZES)
    wait_until(lambda: resumed.poll() is not None or len(find_asleep(4711)) == 2, 120)
    assert resumed.poll() is None, resumed.communicate()
    resumed.send_signal(signal.SIGINT)
    assert finish(resumed).code == 130


def test_a_job_that_slurm_cancels_says_how_to_continue(person: Person) -> None:
    driver = person.start_run("job", "--command", "sleep 4712", "-n", "2")
    wait_until(lambda: driver.poll() is not None or len(find_asleep(4712)) == 2, 120)
    job = person.slurm.find_jobs().split()[0]
    person.slurm.ask("scancel", job)
    ran = finish(driver)
    assert ran.code == 130, ran.err
    assert f"Slurm ended job {job}, by its time limit or by scancel" in ran.err
    assert f"Continue with: proctor resume {person.home}/jobs/job --on slurm" in ran.err
    wait_until(lambda: find_asleep(4712) == [])


def test_what_slurm_rejects_is_a_sentence(person: Person) -> None:
    ran = finish(person.start_run("job", "-a", "nop", "--slurm-arg=--partition=none"))
    assert ran.code == 2
    assert "Slurm rejected the job: Batch job submission failed: Invalid partition" in ran.err
    assert not (person.home / "jobs").exists()
