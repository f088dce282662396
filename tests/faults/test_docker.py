"""What happens to jobs in containers: runners and engines that are killed, disks that are full."""

import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.environments.sandbox.syscalls import mount, unmount
from proctor.filesystems import list_mounts
from tests.environments.docker.engine import Engine, started
from tests.faults.site import PATIENCE_SEC, Site, file_bytes, load, wait_until

AGENT = (
    "echo words > /logs/agent/words.txt; echo made > /logs/artifacts/made.txt;"
    "mkdir -p /workspace && echo '{}' > /workspace/trajectory.jsonl; sleep \"$PAUSE\""
)
WORDS = ("-e", "docker", "--command", AGENT, "--ae", "PAUSE=${PAUSE}", "--no-ledger")
SAVED = {
    "agent/words.txt": b"words\n",
    "artifacts/made.txt": b"made\n",
    "agent/trajectory.jsonl": b"{}\n",
}


def make_site(tmp_path: Path, engine: Engine) -> Site:
    return Site(tmp_path, env={"DOCKER_HOST": engine.host, "PAUSE": "0"})


@pytest.fixture
def docker_site(tmp_path: Path, engine: Engine) -> Iterator[Site]:
    """A place for jobs in the engine that tests share; nothing of them is left there."""
    networks, mounts = engine.lines_of("network", "ls", "--quiet"), set(engine.mounts())
    yield make_site(tmp_path, engine)
    assert engine.lines_of("network", "ls", "--quiet") == networks
    assert engine.lines_of("volume", "ls", "--quiet") == []
    assert set(engine.mounts()) - mounts <= {f"{engine.top}/exec/netns/default"}
    wait_until(lambda: not find_calls(engine))
    assert not [each for each in list_mounts() if each.target.startswith(f"{tmp_path}/")]


def find_calls(engine: Engine) -> list[str]:
    """Calls of the docker program to an engine that have not ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environ = (place / "environ").read_bytes()
            words = (place / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"DOCKER_HOST={engine.host}".encode() in environ and words[0].endswith(b"docker"):
            found.append(place.name)
    return found


def holds(site: Site, runner: subprocess.Popen[str]) -> bool:
    lock = site.job / "runner.lock"
    return lock.exists() and lock.read_text(encoding="ascii").strip() == str(runner.pid)


def kill_and_finish(
    site: Site, engine: Engine, seed: int, *, n_kills: int, within_sec: float
) -> None:
    """Kill runners of one job anywhere, one after the other; let the last one live."""
    rng = random.Random(seed)
    for n in range(2):
        site.make_task(f"t{n}", dockerfile=f"RUN echo {seed} > /built\n")
    words = ("-p", site.top / "tasks", *WORDS, "-k", 1 + n_kills // 3, "-n", 2)
    codes = []
    for _ in range(n_kills):
        with site.begun(*words) as runner:
            wait_until(lambda runner=runner: runner.poll() is not None or holds(site, runner))  # type: ignore[misc]
            time.sleep(rng.random() * within_sec)
            runner.kill()
            codes.append(runner.wait(PATIENCE_SEC))
    assert codes.count(-signal.SIGKILL) >= n_kills // 2, codes
    ran = site.run(*words)
    assert ran.code == 0, ran.err
    assert set(site.rewards()) == {1.0}
    assert load(site.job / "result.json")["finished_at"] is not None
    assert site.proctor("clean").code == 0
    assert engine.containers() == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_runner_may_be_killed_anywhere_50_times(
    docker_site: Site, engine: Engine, seed: int
) -> None:
    kill_and_finish(docker_site, engine, 100 + seed, n_kills=10, within_sec=2.5)


def is_at_work(engine: Engine, text: str = "sleep 600") -> bool:
    return any(
        text in engine.docker("top", name, code=None).stdout.decode()
        for name in engine.containers()
    )


def test_what_a_killed_trial_wrote_is_brought_in_and_its_container_removed(
    docker_site: Site, engine: Engine
) -> None:
    task = docker_site.make_task("t")
    with docker_site.begun("-p", task, *WORDS, PAUSE="600") as runner:
        wait_until(lambda: is_at_work(engine), runner)
        # A run that lives is left alone. Control groups are the machine's, so that this may remove
        # those of runs that another test has just killed.
        cleaned = docker_site.proctor("clean", TMPDIR=str(docker_site.top))
        assert cleaned.code == 0
        assert "container" not in cleaned.out
        assert f"-{runner.pid}-" not in cleaned.out
        assert is_at_work(engine)
        runner.kill()
        runner.wait(PATIENCE_SEC)
    said = docker_site.proctor("clean", "--dry-run").out
    assert "would be removed: container proctor-t__" in said
    assert len(engine.containers()) == 1
    ran = docker_site.proctor("clean")
    assert (ran.code, ran.err) == (0, "")
    assert engine.containers() == []
    (trial,) = docker_site.trials()
    assert SAVED.items() <= file_bytes(trial).items()
    assert docker_site.resume().code == 0
    assert SAVED.items() <= file_bytes(trial / "attempts" / "1").items()
    assert docker_site.rewards() == [1.0]


def test_ctrl_c_leaves_no_container(docker_site: Site, engine: Engine) -> None:
    task = docker_site.make_task("t")
    with docker_site.begun("-p", task, *WORDS, PAUSE="600") as runner:
        wait_until(lambda: is_at_work(engine), runner)
        runner.send_signal(signal.SIGINT)
        assert runner.wait(PATIENCE_SEC) == 130
    assert engine.containers() == []


def test_an_engine_that_dies_errs_its_trials_and_the_job_can_be_resumed(
    tmp_path: Path, own_engine: Engine
) -> None:
    site = make_site(tmp_path, own_engine)
    task = site.make_task("t")
    with site.begun("-p", task, *WORDS, "-k", 2, "-n", 2, PAUSE="600") as runner:
        wait_until(lambda: is_at_work(own_engine), runner)
        own_engine.kill()
        out, _ = runner.communicate(timeout=PATIENCE_SEC)
    assert runner.returncode == 3, out
    kinds = {kind for kind, _ in site.errors()}
    assert kinds <= {"EngineError", "DockerError"}
    assert len(site.errors()) == 2
    own_engine.start()
    ran = site.proctor("resume", site.job, *(word for kind in kinds for word in ("--also", kind)))
    assert ran.code == 0, ran.err
    assert site.rewards() == [1.0, 1.0]
    assert own_engine.containers() == []


def test_a_full_image_store_is_said_and_errs_the_trial(tmp_path: Path, small_image: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount("tmpfs", str(disk), "tmpfs", options="size=64m,mode=700")
    try:
        with started(data=disk / "data") as engine:
            engine.docker("import", small_image, "debian:12")
            site = make_site(tmp_path, engine)
            task = site.make_task("t", dockerfile="RUN head -c 100000000 /dev/zero > /large\n")
            ran = site.run("-p", task, *WORDS)
            assert ran.code == 3
            ((kind, message),) = site.errors()
            assert (kind, "there is no space left" in message) == ("DockerError", True)
            assert engine.containers() == []
    finally:
        unmount(str(disk))
