"""Workers, nodes and drivers that die: every attempt is on record, and none is scored as zero."""

import json
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field

import pytest

from tests.cluster.drivers import Site, finish
from tests.cluster.ray_cluster import find_below, kill_all, wait_until

WORDS = ("--command", "touch /tmp/done; echo begun > /logs/agent/begun; sleep ${PAUSE:-0}")
PAUSED = ("--ae", "PAUSE=${PAUSE}")


def test_a_killed_worker_is_an_attempt_of_its_own(site: Site) -> None:
    site.make_task("t")
    site.variables["PAUSE"] = "4"
    with site.running(1, *WORDS, *PAUSED, "-k", 2) as driver:
        os.kill(site.find_worker_asleep(), signal.SIGKILL)
        ran = finish(driver)
    assert ran.code == 0, ran.err
    assert site.rewards() == [1.0, 1.0]
    (lost,) = site.lost()
    error = site.load(lost)["exception_info"]
    assert "was lost after" in error["exception_message"]
    assert "in phase " in error["exception_message"]
    # Its node lives: what its sandbox had written came back.
    assert (lost / "agent" / "begun").read_text() == "begun\n"
    record = site.load(lost, "record.json")
    assert record["trial_id"] == f"{lost.parent.parent.name}.attempt-1"
    assert record["environment"]["tool_versions"]["node"]
    assert "WorkerLostError" in ran.err
    summary = json.loads(site.proctor("trace", "summary", lost, "--json").out)
    assert summary["trials"][0]["cause"]["kind"] == "infrastructure"
    listed = site.proctor("ledger", "list", "--ledger", site.top / "ledger", "--json").out
    assert record["trial_id"] in listed


def test_a_trial_that_is_lost_too_often_has_no_result(site: Site) -> None:
    site.make_task("t")
    site.variables["PAUSE"] = "600"
    with site.running(1, *WORDS, *PAUSED, "--max-lost", 0) as driver:
        os.kill(site.find_worker_asleep(), signal.SIGKILL)
        ran = finish(driver)
    assert ran.code == 3
    assert "has no result: 1 worker that ran it died" in ran.err
    (lost,) = site.lost()
    assert not (lost.parent.parent / "result.json").exists()
    stats = json.loads((site.job / "result.json").read_text())["stats"]
    assert stats["n_completed_trials"] == 0
    site.variables["PAUSE"] = "0"
    assert site.proctor("resume", site.job).code == 0
    assert site.rewards() == [1.0]


def test_a_dead_node_loses_its_trials_and_the_others_go_on(site: Site) -> None:
    site.make_task("t")
    site.variables["PAUSE"] = "6"
    with site.running(1, *WORDS, *PAUSED, "-k", 8, node="other") as driver:
        site.cluster.nodes["other"].kill()
        ran = finish(driver)
    assert ran.code == 0, ran.err
    assert site.rewards() == [1.0] * 8
    assert len(site.lost()) >= 1
    for lost in site.lost():
        assert site.load(lost, "record.json")["evaluation"]["validity"] != "valid"


def test_a_job_whose_link_died_stops_with_a_sentence_and_is_resumed(site: Site) -> None:
    site.make_task("t")
    site.variables["PAUSE"] = "600"
    with site.running(2, *WORDS, *PAUSED, "-k", 4, "-n", 2) as driver:
        kill_all([site.find_link()])
        ran = finish(driver)
    assert ran.code == 2, ran.err
    assert "the cluster's head node no longer passes messages on" in ran.err
    assert list(site.job.glob("*/result.json")) == []
    wait_until(lambda: not site.find_asleep(), 30)
    site.variables["PAUSE"] = "0"
    ran = site.proctor("resume", site.job, "--on", "ray")
    assert ran.code == 0, ran.err
    check_plan(site, 4)


@dataclass
class Chain:
    """One job, whose workers, nodes and drivers are killed at random until it is done."""

    site: Site
    rng: random.Random
    n_trials: int
    killed: list[str] = field(default_factory=list)

    def run(self, n_kills: int) -> None:
        more = ("-n", 3, "--max-lost", 100)
        words = (*WORDS, *PAUSED, "-k", self.n_trials, *more)
        self.site.variables["PAUSE"] = "2"
        driver = self.site.start_run(*words)
        while len(self.killed) < n_kills and not self._is_done():
            self._wait(driver)
            if driver.poll() is None and not self._kill(driver.pid):
                continue
            driver.communicate(timeout=180)
            self.site.cluster.restore()
            if self._is_begun():
                driver = self.site.start("resume", self.site.job, "--on", "ray", *more)
            else:
                driver = self.site.start_run(*words)
        driver.communicate(timeout=180)
        self.site.cluster.restore()
        self.site.variables["PAUSE"] = "0"
        ran = self.site.proctor("resume", self.site.job)
        assert ran.code == 0, ran.err

    def _wait(self, driver: subprocess.Popen[str]) -> None:
        """Until some trial runs, mostly, and a moment longer."""
        if self.rng.random() < 0.8:
            wait_until(lambda: driver.poll() is not None or self.site.find_asleep(), 90)
        time.sleep(self.rng.uniform(0, 2))

    def _is_begun(self) -> bool:
        return (self.site.job / "config.json").exists()

    def _is_done(self) -> bool:
        return len(list(self.site.job.glob("*__*/result.json"))) == self.n_trials

    def _kill(self, driver: int) -> bool:
        """Kill something, if it is there; return whether it was the driver."""
        kind = self.rng.choice(["worker", "worker", "worker", "driver", "node"])
        nodes = self.site.cluster.nodes
        workers = [pid for node in nodes.values() for pid in node.find_workers()]
        if kind == "worker" and workers:
            kill_all([self.rng.choice(workers)])
        elif kind == "node" and nodes["other"].process.poll() is None:
            nodes["other"].kill()
        elif kind == "driver":
            kill_all(find_below(driver))
        else:
            return False
        self.killed.append(kind)
        return kind == "driver"


def check_plan(site: Site, n_trials: int) -> None:
    """The set of attempts equals the plan, each once, and every lost one can be seen."""
    slots = json.loads((site.job / "proctor.json").read_text())["slots"]
    assert len(slots) == n_trials
    trials = {slot["trial"] for slot in slots}
    assert {trial.name for trial in site.trials} == trials
    assert site.rewards() == [1.0] * n_trials
    for trial in site.trials:
        assert site.load(trial)["trial_name"] == trial.name
        assert list(trial.glob(".incoming-*")) == []
        attempts = sorted(int(path.name) for path in trial.glob("attempts/*"))
        assert attempts == list(range(1, len(attempts) + 1))
    for lost in site.lost():
        assert (lost / "record.json").exists()
    stats = json.loads((site.job / "result.json").read_text())["stats"]
    assert (stats["n_completed_trials"], stats["n_errored_trials"]) == (n_trials, 0)
    assert site.proctor("ledger", "verify", "--ledger", site.top / "ledger").code == 0


@pytest.mark.parametrize(
    ("seed", "n_kills", "n_trials"),
    [(1, 10, 16), *(pytest.param(n, 25, 45, marks=pytest.mark.soak) for n in range(2, 22))],
)
def test_workers_nodes_and_drivers_may_be_killed_anywhere(
    site: Site, seed: int, n_kills: int, n_trials: int
) -> None:
    site.make_task("t")
    chain = Chain(site, random.Random(seed), n_trials)
    chain.run(n_kills)
    assert len(chain.killed) >= n_kills // 2, chain.killed
    check_plan(site, n_trials)
