"""How long a sandbox takes to its first command, beside a bare bubblewrap.

Ours is the whole start of the environment that a trial gets: scratch on disk, control groups, the
overlays, reduced capabilities. The zygote and the task's root are there already, as they are for
every trial of a job but the first.
"""

import asyncio
import logging
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.bench import Bench, BenchmarkError
from benchmarks.row import Row, share_of
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.network import NetworkMode, NetworkPolicy
from proctor.trial.environment import EnvironmentOrder
from proctor.trial.paths import TrialPaths


def start_rows(bench: Bench, *, starts: int = 30) -> Iterator[Row]:
    """One start and `true` inside: ours, and bubblewrap's; the least of many."""
    bubblewrap = shutil.which("bwrap")
    if bubblewrap is None:
        raise BenchmarkError("bwrap is not installed: `make bench` installs bubblewrap as root")
    ours, theirs = [], []
    for _ in range(max(1, bench.rounds // 2)):
        ours += asyncio.run(_start_ours(starts))
        theirs += [_start_theirs(bubblewrap) for _ in range(starts)]
    figures = min(ours), min(theirs)
    yield share_of("sandbox-start", figures, "bubblewrap --unshare-all", at_most=3)


def _start_theirs(bubblewrap: str) -> float:
    start = time.perf_counter()
    subprocess.run([bubblewrap, "--unshare-all", "--ro-bind", "/", "/", "/bin/true"], check=True)
    return time.perf_counter() - start


async def _start_ours(starts: int) -> list[float]:
    with TemporaryDirectory() as scratch:
        return [await start_one(Path(scratch), number) for number in range(starts)]


async def start_one(scratch: Path, number: int, base: str | None = None) -> float:
    """Seconds of one start and `true` inside, on a base."""
    empty = scratch / "environment"
    empty.mkdir(exist_ok=True)
    environment = SandboxEnvironment(
        EnvironmentOrder(
            config=EnvironmentConfig(kwargs={"base": base} if base else {}),
            environment_dir=empty,
            environment_name="bench",
            session_id=f"bench-{number}",
            trial_paths=TrialPaths(scratch / f"trial-{number}"),
            task_env_config=TaskEnvironment(network_mode=NetworkMode.NO_NETWORK),
            network=NetworkPolicy(NetworkMode.NO_NETWORK),
            persistent_env={},
            mounts=(),
            logger=logging.getLogger("bench"),
        )
    )
    start = time.perf_counter()
    await environment.start(force_build=False)
    await environment.exec("true")
    seconds = time.perf_counter() - start
    await environment.stop(delete=True)
    return seconds
