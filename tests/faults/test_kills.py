"""kill -9 of the runner, at every boundary and anywhere: nothing runs on, nothing is lost."""

import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.site import (
    PATIENCE_SEC,
    Site,
    descendants,
    describe,
    file_bytes,
    load,
    wait_until,
)

BOUNDARIES = (
    *("planned", "started", "setup", "healthcheck", "agent-setup", "agent", "collect", "verify"),
    *("record", "ended"),
)
# Writes all that is salvaged, then does what the person's variable says.
AGENT = (
    "echo words > /logs/agent/words.txt; echo made > /logs/artifacts/made.txt;"
    "mkdir -p /workspace && echo '{}' > /workspace/trajectory.jsonl; sleep \"$PAUSE\""
)
WORDS = (
    "--command",
    AGENT,
    "--ae",
    "PAUSE=${PAUSE}",
    "--ve",
    "TEST_PAUSE=${TEST_PAUSE}",
    "-n",
    "3",
)
QUICK = {"PAUSE": "0", "TEST_PAUSE": "0"}
TEST = 'echo 1 > /logs/verifier/reward.txt; sleep "$TEST_PAUSE"\n'
HEALTH = '[environment.healthcheck]\ncommand = "true"\n'
SAVED = {
    "agent/words.txt": b"words\n",
    "artifacts/made.txt": b"made\n",
    "agent/trajectory.jsonl": b"{}\n",
}


class Chain:
    """Runners of one job, each killed, one after the other; none may lose what is there."""

    def __init__(self, site: Site, *, n_tasks: int, n_attempts: int) -> None:
        self.site = site
        site.env = QUICK
        for n in range(n_tasks):
            site.make_task(f"t{n}", test=TEST, toml=HEALTH, dockerfile="RUN echo built > /built\n")
        self._words = ("-p", site.top / "tasks", *WORDS, "-k", n_attempts)
        self._n_trials = n_tasks * n_attempts
        self._names: list[str] = []
        self._before: dict[Path, dict[str, bytes]] = {}

    def die_at(self, boundary: str, nth: int) -> None:
        """Let a runner kill itself."""
        python = [sys.executable, "-m", "tests.faults.mortal"]
        with self.site.begun_as(
            self._words,
            env=self.site.environment({"DIE_AT": boundary, "DIE_NTH": str(nth)}),
            args=python,
        ) as runner:
            assert runner.wait(PATIENCE_SEC) == -signal.SIGKILL, boundary
        self.check()

    def kill_after(self, seconds: float) -> int:
        """Kill a runner from outside, so long after it took hold of the job; its exit code."""
        with self.site.begun(*self._words) as runner:
            holder = self.site.job / "runner.lock"
            wait_until(lambda: runner.poll() is not None or holds(holder, runner.pid))
            time.sleep(seconds)
            runner.kill()
            code = runner.wait(PATIENCE_SEC)
        self.check()
        return code

    def finish(self) -> None:
        """Let the last one live, and see that the job is what it would have been."""
        ran = self.site.run(*self._words)
        assert ran.code == 0, ran.err
        self.check()
        assert self.site.rewards() == [1.0] * self._n_trials
        assert load(self.site.job / "result.json")["finished_at"] is not None
        directories = {path.name for path in self.site.job.iterdir() if path.is_dir()}
        assert directories == set(self._names)
        for trial in self.site.trials():
            assert_attempts_are_whole(trial)
        self.site.check_nothing_left()

    def check(self) -> None:
        """Nothing runs, the slots are the same, and every file that was there still is."""
        self.site.check_nothing_runs()
        if not (self.site.job / "proctor.json").exists():
            assert not self._names
            return
        names = [trial.name for trial in self.site.trials()]
        self._names = self._names or names
        assert names == self._names
        for home, files in self._before.items():
            assert_still_there(home, files)
        self._before = {
            home: file_bytes_of(home)
            for trial in self.site.trials()
            for home in (trial, *trial.glob("attempts/*"))
            if home.is_dir()
        }


def holds(lock: Path, pid: int) -> bool:
    return lock.exists() and lock.read_text(encoding="ascii").strip() == str(pid)


def file_bytes_of(home: Path) -> dict[str, bytes]:
    """The files of one attempt, whatever its number."""
    files = {
        name: data for name, data in file_bytes(home).items() if not name.startswith("attempt")
    }
    return {
        name: without_id(data) if name == "record.json" else data for name, data in files.items()
    }


def without_id(record: bytes) -> bytes:
    return re.sub(rb'"trial_id": "[^"]*"', b"", record)


def assert_still_there(home: Path, files: dict[str, bytes]) -> None:
    """All files of an attempt lie in one directory, where they were or where it was moved."""
    homes = [home] if home.parent.name == "attempts" else [home, *home.glob("attempts/*")]
    if home.name.startswith("."):
        # It was being moved: it has its number now, and perhaps the rest of its files.
        homes.append(home.with_name(home.name[1:]))
    kept = [set(file_bytes_of(one).items()) for one in homes]
    # While it is being moved, some of its files lie here and the rest there.
    kept += [kept[0] | file_bytes_of(moving).items() for moving in home.glob("attempts/.*")]
    missing = [sorted(files.items() - one) for one in kept]
    assert not all(missing), f"{home}: lost {missing}"


def assert_attempts_are_whole(trial: Path) -> None:
    assert not list(trial.glob("attempts/.*"))
    for kept in trial.glob("attempts/*"):
        if (record := kept / "record.json").exists():
            assert load(record)["trial_id"] == f"{trial.name}.attempt-{kept.name}"


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_a_runner_may_be_killed_at_its_boundaries(site: Site, every: int) -> None:
    chain = Chain(site, n_tasks=2, n_attempts=1)
    for number, boundary in enumerate(BOUNDARIES[::every]):
        chain.die_at(boundary, nth=1 if boundary in ("planned", "ended") else 1 + number % 2)
    chain.finish()


def kill_and_finish(chain: Chain, seed: int, *, n_kills: int, within_sec: float) -> None:
    rng = random.Random(seed)
    codes = [chain.kill_after(rng.random() * within_sec) for _ in range(n_kills)]
    # A fast machine may be through with the job before it was killed so often.
    assert codes.count(-signal.SIGKILL) >= n_kills // 2, codes
    chain.finish()


def test_a_runner_may_be_killed_anywhere(site: Site) -> None:
    kill_and_finish(Chain(site, n_tasks=3, n_attempts=5), 1, n_kills=4, within_sec=0.6)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_a_runner_may_be_killed_anywhere_200_times(site: Site, seed: int) -> None:
    chain = Chain(site, n_tasks=4, n_attempts=25)
    kill_and_finish(chain, 1000 + seed, n_kills=10, within_sec=1.2)


@pytest.mark.parametrize(("phase", "pauses"), [("agent", "PAUSE"), ("verify", "TEST_PAUSE")])
def test_what_a_killed_trial_wrote_is_kept_with_its_attempt(
    site: Site, phase: str, pauses: str
) -> None:
    site.env = QUICK
    task = site.make_task("t", test=TEST)
    with site.begun("-p", task, *WORDS, **{pauses: "600"}) as runner:
        wait_until(lambda: is_asleep(runner), runner)
        assert phase in (site.trials()[0] / "record.json").read_text()
        runner.kill()
    site.check_nothing_runs()
    assert len(site.sandboxes()) == 1
    ran = site.resume()
    assert ran.code == 0, ran.err
    (trial,) = site.trials()
    for home in (trial, trial / "attempts" / "1"):
        files = file_bytes(home)
        assert SAVED.items() <= files.items()
        assert not [name for name in files if "salvaged" in name]
    assert (site.rewards(), site.errors()) == ([1.0], [])
    site.check_nothing_left()


def is_asleep(runner: subprocess.Popen[str]) -> bool:
    return any(describe(pid).startswith("sleep 600") for pid in descendants(runner.pid))


def test_clean_brings_the_evidence_to_safety_and_leaves_nothing(site: Site) -> None:
    site.env = QUICK
    task = site.make_task("t", test=TEST)
    with site.begun("-p", task, *WORDS, PAUSE="600") as runner:
        wait_until(lambda: is_asleep(runner), runner)
        runner.kill()
    site.check_nothing_runs()
    ran = site.proctor("clean")
    assert (ran.code, ran.err) == (0, "")
    (trial,) = site.trials()
    assert SAVED.items() <= file_bytes(trial).items()
    site.check_nothing_left()


def test_the_run_of_another_job_reaps_too(site: Site) -> None:
    site.env = QUICK
    task = site.make_task("t", test=TEST)
    with site.begun("-p", task, *WORDS, PAUSE="600") as runner:
        wait_until(lambda: is_asleep(runner), runner)
        # A run that lives is left alone.
        other = ("run", "-p", task, *WORDS, "-o", site.jobs)
        assert site.proctor(*other, "--job-name", "beside").code == 0
        assert is_asleep(runner)
        assert len(site.sandboxes()) == 1
        runner.kill()
    site.check_nothing_runs()
    assert site.proctor(*other, "--job-name", "after").code == 0
    assert SAVED.items() <= file_bytes(site.trials()[0]).items()
    site.check_nothing_left()


def test_evidence_that_is_found_late_goes_to_the_attempt_that_it_is_of(site: Site) -> None:
    site.env = QUICK
    task = site.make_task("t", test=TEST)
    with site.begun("-p", task, *WORDS, PAUSE="600") as runner:
        wait_until(lambda: is_asleep(runner), runner)
        runner.kill()
    site.check_nothing_runs()
    # This one does not know where the sandboxes of that one were.
    assert site.resume(PROCTOR_SCRATCH=str(site.top / "elsewhere")).code == 0
    (trial,) = site.trials()
    before = file_bytes_of(trial)
    assert not SAVED.keys() & file_bytes(trial / "attempts" / "1").keys()
    assert site.proctor("clean").code == 0
    assert SAVED.items() <= file_bytes(trial / "attempts" / "1").items()
    assert file_bytes_of(trial) == before
    site.check_nothing_left()
