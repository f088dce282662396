"""Drivers of the cluster: `proctor` as a program in its network, with files that no node sees."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials, with_restarted
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.cluster.ray_cluster import (
    RayCluster,
    find_below,
    kill_all,
    read_command,
    read_processes,
    wait_until,
)

TASK = """schema_version = "1.3"
[environment]
cpus = 1
memory_mb = 256
"""
TEST = "if [ -e /tmp/done ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


@dataclass
class Site:
    """A directory with tasks and jobs, hidden from the nodes, and a cluster."""

    cluster: RayCluster
    top: Path
    variables: dict[str, str] = field(default_factory=dict)

    def make_task(self, name: str, toml: str = TASK, test: str = TEST) -> Path:
        task = self.top / "tasks" / name
        for folder in ("environment", "tests"):
            (task / folder).mkdir(parents=True)
        (task / "task.toml").write_text(toml)
        (task / "instruction.md").write_text(f"Do {name}.\n")
        (task / "environment" / "Dockerfile").write_text("FROM scratch\n")
        (task / "tests" / "test.sh").write_text(test)
        return task

    @property
    def job(self) -> Path:
        return self.top / "jobs" / "job"

    def start(self, *words: object) -> subprocess.Popen[str]:
        own = {"PROCTOR_CACHE": str(self.top / "cache"), "HOME": str(self.top)}
        return self.cluster.run(*map(str, words), variables={**own, **self.variables})

    def run(self, *words: object) -> "Ran":
        """Run a job on the cluster to its end."""
        return finish(self.start_run(*words))

    def start_run(self, *words: object, on: str = "ray") -> subprocess.Popen[str]:
        given = ("run", "-p", self.top / "tasks", "-o", self.top / "jobs", "--job-name", "job")
        return self.start(*given, "--on", on, "-y", "--ledger", self.top / "ledger", *words)

    def proctor(self, *words: object) -> "Ran":
        return finish(self.start(*words))

    @property
    def trials(self) -> list[Path]:
        return sorted(path.parent for path in self.job.glob("*__*/config.json"))

    def load(self, trial: Path, name: str = "result.json") -> Any:
        return json.loads((trial / name).read_text())

    def rewards(self) -> list[float | None]:
        results = [self.load(trial) for trial in self.trials]
        return [
            (each["verifier_result"] or {}).get("rewards", {}).get("reward") for each in results
        ]

    def lost(self) -> list[Path]:
        """Attempts that ended because their worker was lost."""
        return [
            path.parent
            for path in sorted(self.job.glob("*/attempts/*/result.json"))
            if self.load(path.parent)["exception_info"]["exception_type"] == "WorkerLostError"
        ]

    @contextmanager
    def running(
        self, n: int, *words: object, node: str | None = None, on: str = "ray"
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a job whose agents sleep, and yield when so many of them do, there if it is named."""
        driver = self.start_run(*words, on=on)
        try:
            wait_until(lambda: driver.poll() is not None or len(self.find_asleep(node)) >= n, 90)
            assert driver.poll() is None, driver.communicate()
            yield driver
        finally:
            if driver.poll() is None:
                kill_all(find_below(driver.pid))
            driver.communicate()

    def find_asleep(self, name: str | None = None) -> list[int]:
        """Agents that sleep in sandboxes of the nodes, or of one of them."""
        nodes = self.cluster.nodes
        chosen = list(nodes.values()) if name is None else [nodes[name]]
        tops = {node.process.pid for node in chosen}
        processes = read_processes()

        def is_below(pid: int) -> bool:
            while pid in processes and pid not in tops:
                pid = processes[pid][0]
            return pid in tops

        return [pid for pid, (_, name) in processes.items() if name == "sleep" and is_below(pid)]

    def wake(self, n: int | None = None) -> int:
        """Let agents that sleep go on, all of them or so many; returns how many did."""
        asleep = self.find_asleep()[:n]
        for pid in asleep:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        return len(asleep)

    def wake_all(self, driver: subprocess.Popen[str]) -> "Ran":
        """Let every agent go on as soon as it sleeps, to the end of the job."""
        # Their workers may be new processes, each of which takes a while to start.
        wait_until(lambda: driver.poll() is not None or bool(self.wake() and False), 180)
        return finish(driver)

    def find_sealed(self) -> dict[str, str]:
        """The sealed trials, and the status with which boards and reports count them."""
        with OpenLedger.open(self.top / "ledger") as ledger:
            rows = with_restarted(list_trials(ledger))
        return {row.trial_id: row.status for row in rows}

    def find_left(self) -> list[Path]:
        """What trials left in the directories of the nodes, or still use there."""
        return sorted(self.cluster.place.glob("*/cache/cluster/trials/*"))

    def look(self, path: str) -> str:
        """A page of the job."""
        app = make_app(DataSource(jobs=(self.job,)))
        with TestClient(app, base_url="http://127.0.0.1") as client:
            return client.get(path).text

    def find_link(self) -> int:
        """The process that passes messages between the driver and the nodes, on the head node."""
        head = self.cluster.nodes["head"].find_processes()
        return next(pid for pid in head if read_command(pid)[0].startswith("ray::Link"))

    def find_worker_asleep(self) -> int:
        """The worker of an agent that sleeps."""
        workers = [pid for node in self.cluster.nodes.values() for pid in node.find_workers()]
        asleep = self.find_asleep()
        return next(pid for pid in workers if not set(asleep).isdisjoint(find_below(pid)))


@dataclass(frozen=True)
class Ran:
    """How a driver ended."""

    code: int
    out: str
    err: str


def finish(driver: subprocess.Popen[str]) -> Ran:
    out, err = driver.communicate(timeout=180)
    return Ran(driver.returncode, out, err)


def time_until(is_so: Any) -> float:
    began = time.monotonic()
    wait_until(is_so)
    return time.monotonic() - began
