"""The sandbox from its order to its end: what is refused, what is left, what a root decides."""

import asyncio
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.roots.images import ImageStore, Known
from proctor.errors import ImageError, SandboxError, UnsupportedError
from proctor.harbor.configs import EnvironmentConfig
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.task.environment import TaskOS, Tpu
from proctor.task.network import NetworkMode, NetworkPolicy
from proctor.trial.finding import FindingCode
from tests.environments.orders import order_of
from tests.environments.sandbox.rootfs import make_rootfs
from tests.environments.sandboxes import (
    find_groups,
    find_mounts,
    find_scratch,
    found_in,
    running,
    said,
    several_users,
)

pytestmark = pytest.mark.usefixtures("cache")


# Life


async def test_after_stop_nothing_is_left(tmp_path: Path) -> None:
    before = find_mounts()
    async with running(order_of(tmp_path, task=TaskEnvironment(cpus=1, memory_mb=512))) as box:
        # Processes that ignore signals, odd modes, names that are no text, and a deep tree.
        await box.exec("trap '' TERM; setsid sleep 1000 & disown")
        await box.exec(
            "mkdir /odd && cd /odd && mkdir a && touch a/b && chmod 0 a/b a; "
            "touch $'\\xff\\n'; ln -s / root; mkfifo pipe; "
            "for i in $(seq 100); do mkdir d && cd d; done"
        )
        assert find_groups() or os.geteuid() != 0
        assert len(find_scratch()) == 1
    assert find_groups() == []
    assert find_scratch() == []
    assert find_mounts() == before


async def test_it_may_be_stopped_twice_and_before_its_start_and_started_again(
    tmp_path: Path,
) -> None:
    sandbox = SandboxEnvironment(order_of(tmp_path))
    await sandbox.stop(delete=True)
    await sandbox.start(force_build=False)
    await sandbox.stop(delete=False)
    await sandbox.stop(delete=True)
    await sandbox.start(force_build=False)
    text = await said(sandbox, "echo again")
    await sandbox.stop(delete=True)
    assert text == "again"
    assert find_scratch() == []


@pytest.mark.parametrize("delay", [0, 0.01, 0.03, 0.06])
async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path, delay: float) -> None:
    sandbox = SandboxEnvironment(order_of(tmp_path))
    start = asyncio.ensure_future(sandbox.start(force_build=False))
    await asyncio.sleep(delay)
    start.cancel()
    await asyncio.wait([start])
    await sandbox.stop(delete=True)
    assert find_groups() == []
    assert find_scratch() == []


async def test_a_stop_whose_waiter_is_cancelled_goes_on(tmp_path: Path) -> None:
    sandbox = SandboxEnvironment(order_of(tmp_path))
    await sandbox.start(force_build=False)
    stop = asyncio.ensure_future(sandbox.stop(delete=True))
    await asyncio.sleep(0)
    stop.cancel()
    await asyncio.wait([stop])
    await sandbox.stop(delete=True)
    assert find_scratch() == []


def test_a_start_that_fails_leaves_nothing(tmp_path: Path) -> None:
    order = order_of(tmp_path, task=TaskEnvironment(workdir="/proc/cannot/be/made"))
    with pytest.raises(SandboxError, match="workdir /proc/cannot/be/made cannot be created"):
        asyncio.run(SandboxEnvironment(order).start(force_build=False))
    assert find_groups() == []
    assert find_scratch() == []


async def test_many_at_once_have_each_their_own(tmp_path: Path) -> None:
    async def one(number: int) -> str:
        async with running(order_of(tmp_path, session=f"trial-{number}")) as sandbox:
            await sandbox.exec(f"echo {number} > /mine")
            return await said(sandbox, "cat /mine")

    assert (await asyncio.gather(*map(one, range(8)))) == [str(number) for number in range(8)]
    assert find_scratch() == []


# What is refused before anything starts


@pytest.mark.parametrize(
    ("task", "config", "sentence"),
    [
        (TaskEnvironment(gpus=1), None, "gpus = 1: the sandbox has no graphics processors"),
        (TaskEnvironment(gpu_types=("H100",)), None, "gpu_types = "),
        (TaskEnvironment(tpu=Tpu(type="v6e", topology="2x4")), None, "tpu = v6e 2x4"),
        (TaskEnvironment(os=TaskOS.WINDOWS), None, "os = windows"),
        (
            None,
            EnvironmentConfig(override_gpus=2),
            "--override-gpus 2: the sandbox has no graphics processors",
        ),
        (None, EnvironmentConfig(extra_docker_compose=[Path("x")]), "--extra-docker-compose"),
        (None, EnvironmentConfig(cpu_enforcement_policy="request"), "--cpus request"),
        (None, EnvironmentConfig(memory_enforcement_policy="guarantee"), "--memory guarantee"),
        (TaskEnvironment(memory_mb=0), None, "memory_mb is 0; expected 1 or more"),
        (None, EnvironmentConfig(kwargs={"rootfs": "x"}), "--ek rootfs: the sandbox takes only"),
        (None, EnvironmentConfig(kwargs={"base": 3}), "--ek base=3: expected host"),
    ],
)
def test_what_it_does_not_have_is_refused_by_name(
    tmp_path: Path, task: TaskEnvironment | None, config: EnvironmentConfig | None, sentence: str
) -> None:
    with pytest.raises(UnsupportedError, match=sentence):
        SandboxEnvironment(order_of(tmp_path, task=task, config=config))


def test_an_override_takes_a_request_for_graphics_processors_back(tmp_path: Path) -> None:
    task = TaskEnvironment(gpus=1, gpu_types=("H100",))
    SandboxEnvironment(order_of(tmp_path, task=task, config=EnvironmentConfig(override_gpus=0)))


def test_a_list_of_hosts_is_refused(tmp_path: Path) -> None:
    policy = NetworkPolicy(NetworkMode.ALLOWLIST, ("packages.example.org",))
    with pytest.raises(
        UnsupportedError, match=r"network_mode 'allowlist' \(packages.example.org\)"
    ):
        SandboxEnvironment(order_of(tmp_path, network=policy))


def test_a_compose_file_is_refused(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    (order.environment_dir / "docker-compose.yaml").touch()
    with pytest.raises(
        UnsupportedError, match=r"docker-compose\.yaml: the sandbox does not support Docker"
    ):
        SandboxEnvironment(order)


def test_a_mount_of_the_job_is_refused(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    assert isinstance(order.mounts, list)
    order.mounts.append({"type": "bind", "source": "/data", "target": "/data"})
    with pytest.raises(UnsupportedError, match="--mounts /data on /data"):
        SandboxEnvironment(order)


def test_a_base_that_was_not_imported_is_refused_when_it_starts(tmp_path: Path) -> None:
    config = EnvironmentConfig(kwargs={"base": "nowhere:1"})
    with pytest.raises(ImageError, match="nowhere:1"):
        asyncio.run(SandboxEnvironment(order_of(tmp_path, config=config)).start(force_build=False))


# What a root decides


@several_users
async def test_an_image_without_bash_gets_its_commands_from_sh(tmp_path: Path) -> None:
    image = tmp_path / "image"
    known = Known({"COLOUR": "red"}, "/home/ada", "ada")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ImageStore().import_image("small:1", make_rootfs(image), known, now=now)
    config = EnvironmentConfig(kwargs={"base": "small:1"})
    async with running(order_of(tmp_path, config=config)) as sandbox:
        text = await said(sandbox, 'echo "$0"; echo $COLOUR; id -u; pwd; echo ${HOME}')
        pin = sandbox.snapshot.runtime_image
    assert text.split("\n") == ["sh", "red", "1000", "/home/ada", "/home/ada"]
    assert pin.startswith("small:1@sha256:")


@several_users
def test_a_dockerfile_decides_user_directory_and_variables(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    order = order_of(tmp_path, env={"FROM_TASK": "1"})
    (order.environment_dir / "Dockerfile").write_text(
        "FROM debian:12\nENV FROM_IMAGE=1\nWORKDIR /srv/app\nRUN echo built > product\n"
        "USER nobody\nHEALTHCHECK CMD true\n"
    )

    async def go() -> tuple[str, list[FindingCode]]:
        async with running(order) as sandbox:
            text = await said(sandbox, "id -un; pwd; cat product; echo $FROM_IMAGE$FROM_TASK")
            return text, [finding.code for finding in found_in(sandbox)]

    with caplog.at_level(logging.WARNING):
        text, codes = asyncio.run(go())
    assert text.split() == ["nobody", "/srv/app", "built", "11"]
    assert codes == [FindingCode.BASE_SUBSTITUTED]


async def test_the_environment_directory_of_a_task_with_a_ready_image_is_in_the_workdir(
    tmp_path: Path,
) -> None:
    order = order_of(tmp_path, task=TaskEnvironment(docker_image="ready:1", workdir="/app"))
    (order.environment_dir / "data.txt").write_text("data")
    async with running(order) as sandbox:
        assert (await said(sandbox, "pwd; cat data.txt")) == "/app\ndata"
