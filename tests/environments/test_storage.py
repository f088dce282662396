"""Limited storage: what a sandbox may write, what is freed, and where that is impossible."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from proctor.environments.sandbox import pool, storage
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.reap import delete_session
from proctor.environments.sandbox.rootfs import StepError
from proctor.environments.sandbox.storage import find_obstacle, free_storage, mount_storage
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.trial.agent import AgentContext, Kinds
from proctor.trial.environment import Environment
from proctor.trial.finding import Finding, FindingCode
from proctor.trial.paths import TrialPaths
from proctor.trial.trial import run_trial
from tests.environments.orders import order_of
from tests.environments.sandboxes import find_mounts, find_scratch, found_in, running, said
from tests.trial.stage import StageAgent, load_findings, make_spec, paths_of, write_task
from tests.unprivileged import unprivileged

CAN_LIMIT = pytest.mark.skipif(
    find_obstacle(Path(tempfile.gettempdir()), 64) is not None,
    reason="only root can limit storage, on ext4 or xfs, with loop devices",
)
pytestmark = pytest.mark.usefixtures("cache")
MB = 1 << 20
# Never more than 100 MB, so that a limit that fails does not fill the disk of this machine.
FILL = "head -c 100M /dev/zero > /fill; for n in 1 2 3; do head -c 4k /dev/zero >> /fill$n; done"
FULL = "No space left on device"


def limited(storage_mb: int) -> TaskEnvironment:
    return TaskEnvironment(storage_mb=storage_mb)


def storage_mounts() -> list[str]:
    """Limited storage of this worker's sandboxes that is mounted on the host."""
    # Not below `cache` alone: the place of sandboxes is chosen once for a process.
    return [target for target in find_mounts() if target.endswith("/parts")]


def loop_files() -> list[str]:
    """Files that loop devices have."""
    return [path.read_text() for path in Path("/sys/block").glob("loop*/loop/backing_file")]


def until_freed(below: Path) -> None:
    """Wait until the kernel has freed the loop devices, which it does after the last unmount."""
    until = time.monotonic() + 10
    while any(str(below) in file for file in loop_files()):
        assert time.monotonic() < until, "a loop device is still in use"


# What a sandbox sees


@CAN_LIMIT
@pytest.mark.parametrize("shared", [None, "for this test"])
async def test_a_write_beyond_the_limit_fails_and_the_space_is_freed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, shared: str | None
) -> None:
    """Also if users of the sandbox share the host's ids, so that it mounts its overlays itself."""
    monkeypatch.setattr(pool, "why_ids_shared", lambda _: shared)
    before = find_mounts()
    async with running(order_of(tmp_path, task=limited(32))) as sandbox:
        codes = [finding.code for finding in found_in(sandbox)]
        assert codes == ([FindingCode.IDS_SHARED] if shared else [])
        assert FULL in await said(sandbox, f"({FILL}) 2>&1")
        size = int(await said(sandbox, "stat -c %s /fill"))
        assert 32 * MB <= size < 34 * MB
        assert FULL in await said(sandbox, "head -c 8k /dev/zero 2>&1 > /usr/more")
        assert 32 <= int(await said(sandbox, "df -m --output=size / | tail -1")) <= 34
        assert await said(sandbox, "rm /fill; head -c 20M /dev/zero > /b && echo ok") == "ok"
        assert len(storage_mounts()) == 1
    assert find_scratch() == []
    assert find_mounts() == before
    until_freed(cache)


@CAN_LIMIT
async def test_the_device_and_the_path_of_the_storage_are_not_seen_inside(
    tmp_path: Path, cache: Path
) -> None:
    async with running(order_of(tmp_path, task=limited(8))) as sandbox:
        seen = await said(sandbox, "cat /proc/self/mountinfo; ls /dev; ls -A /")
    assert "loop" not in seen
    assert str(cache) not in seen
    assert "lost+found" not in seen


@CAN_LIMIT
@pytest.mark.parametrize("storage_mb", [1, 2, 100])
async def test_all_of_the_storage_can_be_used_also_if_it_is_tiny(
    tmp_path: Path, storage_mb: int
) -> None:
    async with running(order_of(tmp_path, task=limited(storage_mb))) as sandbox:
        part = storage_mb * MB - 256 * 1024
        assert (await said(sandbox, f"head -c {part} /dev/zero > /a && echo ok")) == "ok"


@CAN_LIMIT
def test_the_job_decides_over_the_task_and_without_a_limit_nothing_is_mounted(
    tmp_path: Path, cache: Path
) -> None:
    async def see(config: EnvironmentConfig, task: TaskEnvironment) -> tuple[int, int]:
        async with running(order_of(tmp_path, config=config, task=task)) as sandbox:
            size = int(await said(sandbox, "df -m --output=size / | tail -1"))
            return size, len(storage_mounts())

    size, n_mounts = asyncio.run(see(EnvironmentConfig(override_storage_mb=16), limited(64)))
    assert (16 <= size <= 18, n_mounts) == (True, 1)
    size, n_mounts = asyncio.run(see(EnvironmentConfig(), TaskEnvironment()))
    assert (size > 64, n_mounts) == (True, 0)


@CAN_LIMIT
async def test_a_copy_of_a_full_sandbox_has_its_files_and_a_limit_of_its_own(
    tmp_path: Path,
) -> None:
    async with running(order_of(tmp_path, task=limited(16))) as sandbox:
        await sandbox.exec(f"echo one > /a; {FILL}")
        await sandbox.freeze()
        copy = await sandbox.open_frozen(TrialPaths(tmp_path))
        look = "cat /a; head -c 100M /dev/zero 2>&1 > /more; stat -c %s /more"
        one, fault, size = (await said(copy, look)).split("\n")
        await copy.stop(delete=True)
        assert (one, FULL in fault, int(size) < 18 * MB) == ("one", True, True)


@CAN_LIMIT
async def test_two_at_once_have_each_their_own(tmp_path: Path) -> None:
    first = order_of(tmp_path, session="one", task=limited(16))
    second = order_of(tmp_path, session="two", task=limited(16))
    async with running(first) as one, running(second) as two:
        await one.exec(FILL)
        assert await said(two, "head -c 15M /dev/zero > /a && echo ok") == "ok"


@CAN_LIMIT
@pytest.mark.parametrize("delay", [0, 0.01, 0.03, 0.06])
def test_a_start_that_is_cancelled_leaves_no_mount(
    tmp_path: Path, cache: Path, delay: float
) -> None:
    async def go() -> None:
        sandbox = SandboxEnvironment(order_of(tmp_path, task=limited(8)))
        start = asyncio.ensure_future(sandbox.start(force_build=False))
        await asyncio.sleep(delay)
        start.cancel()
        await asyncio.wait([start])
        await sandbox.stop(delete=True)

    asyncio.run(go())
    assert storage_mounts() == []
    until_freed(cache)


@CAN_LIMIT
def test_one_that_is_being_made_ahead_when_the_job_ends_leaves_no_mount(
    tmp_path: Path, cache: Path
) -> None:
    async def go() -> None:
        for _ in range(2):
            async with running(order_of(tmp_path, task=limited(8))):
                pass

    for _ in range(5):
        asyncio.run(go())
        assert storage_mounts() == []
    until_freed(cache)


# Trials


@CAN_LIMIT
def test_a_trial_that_fills_its_storage_is_scored_and_its_files_are_collected(
    tmp_path: Path, cache: Path
) -> None:
    test = "#!/bin/bash\ncat /app/done > /logs/verifier/reward.txt\n"
    toml = '[environment]\nnetwork_mode = "no-network"\nstorage_mb = 16\n'
    task = write_task(tmp_path / "task", {"tests/test.sh": test}, toml)
    spec = make_spec(task, tmp_path / "jobs")
    heard: list[str] = []

    async def work(environment: Environment, context: AgentContext) -> None:
        await environment.exec("echo begun > /logs/agent/log.txt; mkdir /app; echo 1 > /app/done")
        heard.append(await said(environment, f"({FILL}) 2>&1"))

    kinds = Kinds(lambda order: StageAgent(order, work), SandboxEnvironment)
    result = asyncio.run(run_trial(spec, paths_of(spec).trial_dir, kinds, lambda _: None))
    assert result.exception_info is None, result.exception_info
    assert FULL in heard[0]
    assert result.verifier_result is not None
    assert result.verifier_result.rewards == {"reward": 1}
    assert (paths_of(spec).agent_dir / "log.txt").read_text() == "begun\n"
    assert json.loads(paths_of(spec).clean_room_path.read_text())["verdict"] == "agrees"
    assert "storage-not-enforced" not in {each["code"] for each in load_findings(spec)}
    assert storage_mounts() == []
    until_freed(cache)


# Killed runners


@CAN_LIMIT
def test_what_a_killed_runner_had_mounted_is_salvaged_and_freed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environ = {**os.environ, "PROCTOR_CACHE": str(cache)}
    words = [sys.executable, "-m", "tests.environments.left_behind", str(tmp_path), "16"]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        runner.send_signal(signal.SIGKILL)
    assert len(storage_mounts()) == 3
    cleaning = [sys.executable, "-m", "proctor", "clean"]
    subprocess.run(cleaning, env=environ, check=True, capture_output=True)
    assert list((cache / "scratch").iterdir()) == []
    assert (tmp_path / "job/one/agent/left.txt").read_text() == "evidence\n"
    assert storage_mounts() == []
    until_freed(cache)


@CAN_LIMIT
def test_scratch_is_deleted_below_a_mount_that_is_in_use_and_not_through_it(tmp_path: Path) -> None:
    session = tmp_path / "session"
    parts = session / "parts"
    parts.mkdir(parents=True)
    mount_storage(parts, 4)
    (parts / "kept").write_text("kept")
    used = os.open(parts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        delete_session(session)
        assert not session.exists()
        assert os.stat("kept", dir_fd=used).st_size == 4
    finally:
        os.close(used)
    until_freed(tmp_path)


# Machines that cannot


def start_and_stop(place: Path, storage_mb: int) -> list[Finding]:
    async def go() -> list[Finding]:
        async with running(order_of(place, task=limited(storage_mb))) as sandbox:
            return found_in(sandbox)

    return asyncio.run(go())


@CAN_LIMIT
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("_CONTROL", "/dev/no-loop-control", "there are no loop devices: /dev/no-loop-control"),
        ("_find_mkfs", lambda: None, "mkfs.ext4 is not installed"),
        ("_find_mkfs", lambda: "/bin/false", "mkfs.ext4: exit code 1"),
        ("_GET_FREE", 0x4CFF, "opening a loop device: "),
        ("_OPTIONS", "no-such-option", "mounting /dev/loop"),
        ("_ALLOCATING", frozenset(), "where space cannot be reserved as on ext4 and xfs"),
        ("_SHARE", 1 << 40, " free, and the limit requires "),
    ],
)
def test_the_reason_why_storage_is_not_limited_is_in_the_finding(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: object,
    reason: str,
) -> None:
    monkeypatch.setattr(storage, name, value)
    (found,) = start_and_stop(tmp_path, 8)
    assert found.code is FindingCode.STORAGE_NOT_ENFORCED
    assert found.message.startswith("storage_mb = 8 is not enforced: ")
    assert reason in found.message
    assert reason in str(found.detail["reason"])
    assert storage_mounts() == []
    until_freed(cache)


@CAN_LIMIT
def test_a_disk_that_is_too_full_is_named_and_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, FULL)

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    (tmp_path / "parts").mkdir()
    with pytest.raises(StepError, match=r"reserving 1\d\.\d MB: No space left on device"):
        mount_storage(tmp_path / "parts", 8)
    assert list((tmp_path / "parts").iterdir()) == []


def test_an_ordinary_user_cannot_limit_storage(tmp_path: Path) -> None:
    with unprivileged():
        reason = find_obstacle(tmp_path, 100)
    assert reason == "only root can give a sandbox a file system of that size"


@CAN_LIMIT
def test_a_limit_below_1_is_not_enforced(tmp_path: Path) -> None:
    assert find_obstacle(tmp_path, -5) == "no file system has that size"


def test_freeing_what_is_not_mounted_does_nothing(tmp_path: Path) -> None:
    free_storage(tmp_path)
    free_storage(tmp_path / "missing")
    assert tmp_path.is_dir()
