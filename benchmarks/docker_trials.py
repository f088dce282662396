"""Trials in containers, beside the bare calls of docker that any runner of such trials needs.

The other side is `docker run`, two `docker exec` and `docker rm`, by as many at once, on the same
engine and the same image: one of its own, started here. It has no verifier's room, no limits and
keeps nothing. Ours has no clean room, as in `run-sandbox`: that runs the tests again, in containers
of its own. Only root can start an engine.
"""

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench import Bench, BenchmarkError, command_seconds, entry_point
from benchmarks.row import Row, times_faster
from benchmarks.runner import OUR_SANDBOX
from tests.environments.docker.engine import (
    Engine,
    find_obstacle,
    import_images,
    pack_image,
    started,
)

_AT_ONCE = 2
_TASK = {
    "task.toml": '[environment]\nnetwork_mode = "no-network"\ndocker_image = "small:1"\n',
    "instruction.md": "Write 42 to /answer.\n",
    "environment/keep": "",
    "solution/solve.sh": "#!/bin/bash\necho 42 > /answer\n",
    "tests/test.sh": (
        '#!/bin/bash\n[ "$(cat /answer)" = 42 ] && echo 1 > /logs/verifier/reward.txt\n'
    ),
}


def docker_rows(bench: Bench, *, fewer: int = 2, more: int = 22) -> Iterator[Row]:
    """What each further oracle trial takes, from a small job to a larger one."""
    if obstacle := find_obstacle():
        raise BenchmarkError(obstacle)
    with tempfile.TemporaryDirectory() as place, _own_engine(Path(place)):
        task, jobs = _make_task(Path(place) / "task"), Path(place) / "jobs"
        ours, bare = [], []
        # In turns, so that a busy spell of the machine hits both.
        for _ in range(min(3, bench.rounds)):
            short = _job_seconds(task, jobs, fewer)
            ours.append((_job_seconds(task, jobs, more) - short) / (more - fewer))
            bare.append(_bare_seconds(more - fewer) / (more - fewer))
        each = max(min(ours), 1e-6), min(bare)
        yield times_faster("docker-trials", each, "docker run, 2 exec, rm", at_least=0.5)


@contextmanager
def _own_engine(place: Path) -> Iterator[Engine]:
    before = os.environ.get("DOCKER_HOST")
    with started() as engine:
        import_images(engine, pack_image(place / "image"))
        os.environ["DOCKER_HOST"] = engine.host
        try:
            yield engine
        finally:
            os.environ.pop("DOCKER_HOST")
            if before is not None:
                os.environ["DOCKER_HOST"] = before


def _make_task(directory: Path) -> Path:
    for name, text in _TASK.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


def _job_seconds(task: Path, jobs: Path, n_attempts: int) -> float:
    where = ("-p", str(task), "-o", str(jobs), "--job-name", "job", "-q", "-y")
    how = ("-e", "docker", *OUR_SANDBOX, "-k", str(n_attempts), "-n", str(_AT_ONCE))
    seconds = command_seconds(entry_point("proctor.cli.main", "main", "run", *where, *how))
    results = [path.read_text(encoding="utf-8") for path in jobs.glob("job/*/result.json")]
    if sum('"reward": 1.0' in each for each in results) != n_attempts:
        raise BenchmarkError(f"{jobs}: not all of {n_attempts} trials have a reward of 1")
    shutil.rmtree(jobs)
    return seconds


def _bare_seconds(count: int) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        list(workers.map(_run_bare, range(count)))
    return time.perf_counter() - start


def _run_bare(_: int) -> None:
    name = f"bare-{uuid.uuid4().hex}"
    run = ("run", "--detach", "--network", "none", "--name", name, "small:1", "sleep", "infinity")
    for words in (
        run,
        ("exec", name, "bash", "-c", "echo 42 > /answer"),
        ("exec", name, "bash", "-c", '[ "$(cat /answer)" = 42 ]'),
        ("rm", "--force", name),
    ):
        done = subprocess.run(["docker", *words], capture_output=True, check=False)
        if done.returncode != 0:
            raise BenchmarkError(f"docker {words[0]}: {done.stderr.decode(errors='replace')}")
