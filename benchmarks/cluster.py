"""A Ray cluster of two nodes on this machine: what a trial costs there, and how fast it ends.

The CPU of a trial is that of the driver and of every process of both nodes, for trials that do
nothing. Two jobs of different sizes are run, so that their start does not count, and what the
cluster takes while it is idle is subtracted.
"""

import os
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from benchmarks.bench import Bench, BenchmarkError
from benchmarks.row import Row, share_of
from tests.cluster.drivers import Site, finish, time_until
from tests.cluster.ray_cluster import RayCluster, make_token

_TRIAL_SEC = 60.0
_CANCEL_SEC = 2.0
_IDLE_SEC = 5.0
_TICKS = os.sysconf("SC_CLK_TCK")
# User and system, in /proc/PID/stat after the name.
_TIMES = slice(11, 13)
_SAMPLE_SEC = 0.1


def cluster_rows(bench: Bench, sizes: tuple[int, int] = (20, 220)) -> Iterator[Row]:
    """What Ray adds to a trial of a minute, and the time from Ctrl-C to the last sandbox."""
    with tempfile.TemporaryDirectory(prefix="pb-", dir="/tmp") as place:
        hidden = Path(place, "hidden")
        hidden.mkdir()
        cluster = RayCluster(Path(place, "c"), [hidden], make_token())
        cluster.place.mkdir()
        try:
            cluster.start()
            yield _measure_cpu(Site(cluster, hidden), sizes)
            yield _measure_cancel(Site(cluster, hidden), bench.rounds)
        finally:
            cluster.stop()


def _measure_cpu(site: Site, sizes: tuple[int, int]) -> Row:
    site.make_task("t")
    # Workers are started once, and stay.
    _run_null(site, sizes[0], "ray")
    idle = _find_idle_share(site)
    n_more = sizes[1] - sizes[0]
    local = _find_growth([_run_null(site, n, "local") for n in sizes], 0.0) / n_more
    remote = _find_growth([_run_null(site, n, "ray") for n in sizes], idle) / n_more
    added = max(remote - local, 1e-9)
    return share_of("ray-60s", (added, _TRIAL_SEC), "a trial of one minute", at_most=0.001)


def _find_growth(measured: list[tuple[float, float]], idle: float) -> float:
    """CPU seconds that a large job takes beyond a small one, from the (CPU, time) of both."""
    small, large = (cpu - idle * seconds for cpu, seconds in measured)
    return large - small


def _run_null(site: Site, n: int, on: str) -> tuple[float, float]:
    """CPU and time of a job of so many trials that do nothing."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    words = ("-a", "nop", "-e", "null", "-k", n, "-n", 8, "--job-name", f"{on}-{n}-{began}", "-q")
    with _Meter(site) as nodes:
        ran = finish(site.start_run(*words, on=on))
    seconds = time.monotonic() - began
    if ran.code:
        raise BenchmarkError(f"a job of {n} trials ended with {ran.code}: {ran.err[-1000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    driver = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    return driver + nodes.seconds, seconds


def _find_idle_share(site: Site) -> float:
    """CPU seconds that the cluster takes in a second of doing nothing."""
    with _Meter(site) as nodes:
        time.sleep(_IDLE_SEC)
    return nodes.seconds / _IDLE_SEC


class _Meter:
    """CPU of all processes of the nodes, inside the context.

    Read while they live: Ray does not wait for its workers, and nobody else knows what they took.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ticks: dict[int, int] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._read()
        self._before = sum(self._ticks.values())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._read()
        self.seconds = (sum(self._ticks.values()) - self._before) / _TICKS

    def _sample(self) -> None:
        while not self._is_over.wait(_SAMPLE_SEC):
            self._read()

    def _read(self) -> None:
        for node in self._site.cluster.nodes.values():
            for pid in node.find_processes():
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                self._ticks[pid] = sum(map(int, fields[_TIMES]))


def _measure_cancel(site: Site, rounds: int) -> Row:
    """The longest of some rounds, with four sandboxes that sleep."""
    seconds = []
    for number in range(rounds):
        words = ("--command", "sleep 600", "-k", 4, "--job-name", f"cancel-{number}")
        with site.running(4, *words) as driver:
            driver.send_signal(signal.SIGINT)
            seconds.append(time_until(lambda: not site.find_asleep()))
            _end(driver)
    return share_of("ray-cancel", (max(seconds), _CANCEL_SEC), "two seconds", at_most=1.0)


def _end(driver: subprocess.Popen[str]) -> None:
    if finish(driver).code != 128 + signal.SIGINT:
        raise BenchmarkError("a job that was interrupted ended otherwise")
