"""Workers, nodes and drivers that die: every attempt is on record, and none is scored as zero."""

import json
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass

import pytest

from proctor.ledger.counting import RESTARTED
from proctor.ledger.verification.verify import verify_ledger
from tests.cluster.drivers import TASK, Site, finish
from tests.cluster.ray_cluster import CLIENT, find_below, kill_all, wait_until
from tests.serve.servers import serving

# Goes on as soon as its sleep is ended.
WORDS = ("--command", "touch /tmp/done; echo begun > /logs/agent/begun; sleep ${PAUSE:-600}; true")
PAUSED = ("--ae", "PAUSE=${PAUSE}")


@pytest.mark.parametrize("on", ["ray", pytest.param(CLIENT, marks=pytest.mark.soak)])
def test_a_killed_worker_is_an_attempt_of_its_own(site: Site, on: str) -> None:
    site.make_task("t")
    with site.running(1, *WORDS, "-k", 2, on=on) as driver:
        os.kill(site.find_worker_asleep(), signal.SIGKILL)
        ran = site.wake_all(driver)
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
    assert site.find_sealed()[record["trial_id"]] == RESTARTED
    assert f'href="/trials/job/{record["trial_id"]}"' in site.look("/experiments/job")
    assert "WorkerLostError" in site.look(f"/trials/job/{record['trial_id']}")


def test_a_trial_that_is_lost_too_often_has_no_result(site: Site) -> None:
    site.make_task("t")
    site.variables["PAUSE"] = "600"
    with site.running(1, *WORDS, *PAUSED, "--max-lost", 0) as driver:
        os.kill(site.find_worker_asleep(), signal.SIGKILL)
        ran = finish(driver)
    assert ran.code == 3
    assert "has no result: 1 worker that ran it died" in ran.err
    (lost,) = site.lost()
    trial = lost.parent.parent
    assert not (trial / "result.json").exists()
    stats = json.loads((site.job / "result.json").read_text())["stats"]
    assert stats["n_completed_trials"] == 0
    # Its attempt is evidence, and counts for nothing: least of all as a 0.
    assert "ledger (a new ledger): 1 sealed\n" in ran.out
    assert "without a record" not in ran.out
    assert site.find_sealed() == {f"{trial.name}.attempt-1": RESTARTED}
    assert f'href="/trials/job/{trial.name}.attempt-1"' in site.look("/experiments/job")
    site.variables["PAUSE"] = "0"
    assert site.proctor("resume", site.job).code == 0
    assert site.rewards() == [1.0]
    check_sealed(site)


def test_a_dead_node_loses_its_trials_and_the_others_go_on(site: Site) -> None:
    # One at a time on one node, and two on the other.
    site.make_task("t", TASK.replace("256", "3000"))
    with site.running(2, *WORDS, "-k", 3, node="other") as driver:
        site.cluster.nodes["other"].kill()
        ran = site.wake_all(driver)
    assert ran.code == 0, ran.err
    assert site.rewards() == [1.0] * 3
    assert len(site.lost()) == 2
    for lost in site.lost():
        assert site.load(lost, "record.json")["evaluation"]["validity"] != "valid"


def test_a_job_stops_with_a_sentence_when_the_last_node_that_fits_is_dead(site: Site) -> None:
    site.make_task("t", TASK.replace("256", "7000"))
    with site.running(1, *WORDS) as driver:
        site.cluster.nodes["other"].kill()
        ran = finish(driver)
    assert ran.code == 2
    assert "no node is left for the trials that wait: no node of the cluster fits" in ran.err
    assert len(site.lost()) == 1


def test_a_job_whose_link_died_stops_with_a_sentence_and_is_resumed(site: Site) -> None:
    site.make_task("t")
    site.variables["PAUSE"] = "600"
    with site.running(2, *WORDS, *PAUSED, "-k", 2) as driver:
        kill_all([site.find_link()])
        ran = finish(driver)
    assert ran.code == 2, ran.err
    assert "the cluster's head node no longer passes messages on" in ran.err
    assert list(site.job.glob("*/result.json")) == []
    site.variables["PAUSE"] = "0"
    ran = site.proctor("resume", site.job)
    assert ran.code == 0, ran.err
    check_plan(site, 2)


@pytest.mark.soak
def test_a_server_that_is_killed_under_a_job_gets_its_trials_later(site: Site) -> None:
    site.make_task("t")
    (site.top / "served").mkdir()
    with site.cluster.entered(), serving(site.top / "served") as served:
        site.variables |= served.machine(experiments=("job",)).env
        words = (*WORDS, "-k", 4, "-n", 2, "--ledger", served.url)
        with site.running(2, *words) as driver:
            site.wake(1)
            wait_until(served.trials)
            served.stop(signal.SIGKILL)
            os.kill(site.find_worker_asleep(), signal.SIGKILL)
            ran = site.wake_all(driver)
        assert ran.code == 0, ran.err
        assert site.rewards() == [1.0] * 4
        served.start()
        assert site.proctor("ledger", "seal", "--ledger", served.url).code == 0
        names = {f"{lost.parent.parent.name}.attempt-1" for lost in site.lost()}
        assert len(names) == 1
        assert sorted(served.trials()) == sorted(names | {trial.name for trial in site.trials})
    assert verify_ledger(served.directory).damage == []


@dataclass
class Chain:
    """One job, whose workers, nodes and drivers are killed at random, a driver last of all."""

    site: Site
    rng: random.Random
    n_trials: int
    n_woken: int = 0

    def run(self, n_kills: int) -> list[str]:
        """Kill so many, and let the job end; returns what was killed."""
        kinds = (["worker", "worker", "worker", "node", "driver"] * n_kills)[: n_kills - 1]
        self.rng.shuffle(kinds)
        driver, killed = self._start(), list[str]()
        for kind in [*kinds, "driver"]:
            while not self._kill(kind, driver):
                # A driver that begins as a node dies cannot ask that node, and ends.
                driver = driver if driver.poll() is None else self._start_again(driver)
            killed.append(kind)
            if kind == "driver":
                driver = self._start_again(driver, is_last=len(killed) == n_kills)
        while "does not answer" in (ran := self.site.wake_all(driver)).err:
            driver = self._start()
        assert ran.code == 0, ran.err
        return killed

    def _start(self) -> subprocess.Popen[str]:
        more = ("-n", 3, "--max-lost", 100)
        if (self.site.job / "config.json").exists():
            return self.site.start("resume", self.site.job, "--on", "ray", *more)
        return self.site.start_run(*WORDS, "-k", self.n_trials, *more)

    def _start_again(
        self, driver: subprocess.Popen[str], *, is_last: bool = False
    ) -> subprocess.Popen[str]:
        driver.communicate(timeout=180)
        self.site.cluster.restore()
        if is_last:
            # As if a while had passed, in which no driver fetched what is left on the nodes.
            wait_until(lambda: not self._find_workers())
            for place in self.site.find_left():
                (place / "left").touch()
                os.utime(place / "left", (0, 0))
        return self._start()

    def _kill(self, kind: str, driver: subprocess.Popen[str]) -> bool:
        """Kill something after a while, if it is there then; return whether it was."""
        if kind == "node":
            self.site.cluster.restore()
        self._wait(driver)
        if driver.poll() is not None:
            return False
        if kind == "node":
            self.site.cluster.nodes["other"].kill()
            return True
        victims = find_below(driver.pid)
        if kind == "worker":
            victims = self._find_workers()
            self.rng.shuffle(victims)
            del victims[1:]
        kill_all(victims)
        return bool(victims)

    def _wait(self, driver: subprocess.Popen[str]) -> None:
        """Until some trial runs, mostly, of which one may go on, and a moment longer."""
        if self.rng.random() < 0.8:
            wait_until(lambda: driver.poll() is not None or self.site.find_asleep(), 90)
            # Some are left for the kills to come: the job does not end before.
            if self.rng.random() < 0.5 and self.n_woken < self.n_trials - 3:
                self.n_woken += self.site.wake(1)
        time.sleep(self.rng.uniform(0, 1))

    def _find_workers(self) -> list[int]:
        nodes = self.site.cluster.nodes.values()
        return [pid for node in nodes for pid in node.find_workers()]


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
    stats = json.loads((site.job / "result.json").read_text())["stats"]
    assert (stats["n_completed_trials"], stats["n_errored_trials"]) == (n_trials, 0)
    check_sealed(site)


def check_sealed(site: Site) -> None:
    """Every trial and every attempt is in the ledger once, and only the trials count."""
    sealed, trials = site.find_sealed(), {trial.name for trial in site.trials}
    attempts = set()
    for trial in site.trials:
        kept = [path.name for path in trial.glob("attempts/*")]
        assert sorted(kept, key=int) == [str(n + 1) for n in range(len(kept))]
        attempts |= {f"{trial.name}.attempt-{number}" for number in kept}
    assert set(sealed) == trials | attempts
    assert {name for name, status in sealed.items() if status == RESTARTED} == attempts
    assert verify_ledger(site.top / "ledger").damage == []


@pytest.mark.parametrize(
    ("seed", "n_kills", "n_trials"),
    [(1, 10, 8), *(pytest.param(n, 25, 16, marks=pytest.mark.soak) for n in range(2, 22))],
)
def test_workers_nodes_and_drivers_may_be_killed_anywhere(
    site: Site, seed: int, n_kills: int, n_trials: int
) -> None:
    site.make_task("t")
    killed = Chain(site, random.Random(seed), n_trials).run(n_kills)
    assert len(killed) == n_kills
    assert set(killed) == {"worker", "node", "driver"}
    check_plan(site, n_trials)
    # The last driver had every node remove what the killed ones left there.
    assert site.find_left() == []
