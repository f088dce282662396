"""A container as an environment of a trial: commands, users, limits, its beginning and its end."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from proctor.environments.docker.containers import list_processes
from proctor.environments.docker.environment import DockerEnvironment
from proctor.errors import ContainerDiedError, DockerError, ImageError
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.traces.trajectory import load_trajectory
from proctor.trial.environment import (
    EnvironmentOrder,
    ExecResult,
    Listing,
    ScriptExecuting,
    Watched,
)
from proctor.trial.finding import FindingCode
from proctor.trial.output_log import OutputLog
from tests.environments.docker.containers import docker_config, docker_order, running
from tests.environments.docker.engine import Engine
from tests.environments.ghosts import leave_ghost
from tests.environments.orders import PUBLIC
from tests.environments.sandboxes import said, until_running

ON_X86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the ghost is for x86-64")
pytestmark = pytest.mark.usefixtures("cache", "engine")


async def test_a_command_runs_in_bash_as_root_with_both_streams_in_their_order(
    tmp_path: Path,
) -> None:
    mixed = "".join(f"out{n}\nerr{n}\n" for n in (1, 2, 3))
    async with running(docker_order(tmp_path)) as place:
        words = "[[ 1 ]] && id -u; for n in 1 2 3; do echo out$n; echo err$n >&2; done; exit 3"
        assert (await place.exec(words), await place.exec("true")) == (
            ExecResult(f"0\n{mixed}", None, 3),
            ExecResult(None, None, 0),
        )


async def test_output_is_recorded_while_commands_run_and_not_in_rooms(tmp_path: Path) -> None:
    order = docker_order(tmp_path)
    log = OutputLog(str(order.trial_paths.agent_dir), None, order.logger)
    async with running(order) as place:
        await place.exec("echo before")
        place.output_log = log
        done = asyncio.ensure_future(place.exec("echo one; echo two >&2; sleep 0.5; exit 3"))
        while "two" not in "".join(log.read_text()):
            await asyncio.sleep(0.01)
        assert not done.done()
        assert (await done).stdout == "one\ntwo\n"
        with pytest.raises(RuntimeError, match="timed out"):
            await place.exec("echo three; sleep 60", timeout_sec=1)
        room = await place.open_room(("/tests",))
        await room.exec("echo of the room")
        place.output_log = None
    log.close()
    assert "".join(log.read_text()) == "one\ntwo\nthree\n"
    entries = load_trajectory(log.path).entries
    assert [entry.exit_code for entry in entries if entry.duration_ms is not None] == [3, None]
    assert entries[-1].content == "stopped before it ended"


async def test_what_is_wrong_with_a_command_is_its_result(tmp_path: Path) -> None:
    async with running(docker_order(tmp_path)) as place:
        nowhere, nobody, missing = [
            await place.exec("true", cwd="/nowhere"),
            await place.exec("true", user="nobody-of-that-name"),
            await place.exec("no-such-program"),
        ]
    assert nowhere.return_code != 0
    assert "/nowhere" in (nowhere.stdout or "")
    assert "nobody-of-that-name" in (nobody.stdout or "")
    assert missing.return_code == 127


def test_it_can_all_that_a_trial_asks_of_one_of_ours(tmp_path: Path) -> None:
    place = DockerEnvironment(docker_order(tmp_path))
    assert isinstance(place, Watched)
    assert isinstance(place, Listing)
    assert isinstance(place, ScriptExecuting)
    assert not place.capabilities.mounted


async def test_variables_places_and_users_are_those_of_the_task_and_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "yes")
    task = TaskEnvironment(docker_image="small:1", workdir="/work/here")
    order = docker_order(tmp_path, task=task, env={"A": "task", "B": "task", "PATH": "/bin"})
    task_line = "task line\nline /bin \n/work/here\n1000"
    async with running(order) as place:
        place.default_user = 1000
        words = 'echo "$A $B $PATH $SECRET_OF_THE_HOST"; pwd; id -u'
        first = await said(place, words, env={"B": "line\nline"})
        second = await said(place, "id -un; pwd; echo $HOME", user="ada", cwd="/tmp")
        assert [first, second, await said(place, "id -u", user="root")] == [
            task_line,
            "ada\n/tmp\n/home/ada",
            "0",
        ]


async def test_limits_and_rights_are_those_that_were_asked_for(
    tmp_path: Path, engine: Engine
) -> None:
    task = TaskEnvironment(docker_image="small:1", cpus=0.5, memory_mb=256, storage_mb=10)
    async with running(docker_order(tmp_path, task=task)) as place:
        (container,) = engine.containers()
        facts = json.loads(engine.docker("inspect", container).stdout)[0]["HostConfig"]
        status = await said(place, "grep -E 'CapEff|NoNewPrivs' /proc/self/status")
        findings = [finding.code for finding in place.findings]
    assert facts["NanoCpus"] == 5 * 10**8
    assert (facts["Memory"], facts["MemorySwap"]) == (256 << 20, 256 << 20)
    assert (facts["PidsLimit"], facts["NetworkMode"]) == (4096, "none")
    assert status.split() == ["CapEff:", "00000000a00404fb", "NoNewPrivs:", "1"]
    assert findings == [FindingCode.STORAGE_NOT_ENFORCED]


async def test_a_command_that_takes_too_long_is_dead_with_its_children(tmp_path: Path) -> None:
    async with running(docker_order(tmp_path)) as place:
        with pytest.raises(RuntimeError, match="Command timed out after 1 seconds"):
            await place.exec("sleep 600 & (sleep 601; true) & sleep 602", timeout_sec=1)
        waiting = asyncio.ensure_future(place.exec("echo on > /on; sleep 603"))
        while not await place.is_file("/on"):
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        left = [each.command for each in await place.list_processes()]
        assert (await said(place, "echo alive"), left) == ("alive", [])


async def test_a_service_outlives_its_command_and_is_listed(tmp_path: Path) -> None:
    async with running(docker_order(tmp_path)) as place:
        await place.exec("exec >/dev/null 2>&1; setsid sleep 600 & setsid sleep infinity &")
        await place.exec("true")
        await until_running(place, "sleep 600", "sleep infinity")


@ON_X86
async def test_a_process_is_listed_and_killed_while_any_of_its_threads_lives(
    tmp_path: Path, engine: Engine
) -> None:
    async with running(docker_order(tmp_path)) as place:
        with pytest.raises(RuntimeError, match="timed out"):
            await place.exec(f"{leave_ghost('/one').replace('setsid', '')} wait", timeout_sec=1)
        await place.exec(leave_ghost("/two"))
        (container,) = engine.containers()
        first = json.loads(engine.docker("inspect", container).stdout)[0]["State"]["Pid"]
        by_engine = [row.process for row in await list_processes(container, first)]
        seen = await place.list_processes(), by_engine
        assert [[each.command for each in listed] for listed in seen] == [["/two"], ["/two"]]


async def test_a_flood_of_output_is_cut_and_found(tmp_path: Path) -> None:
    async with running(docker_order(tmp_path)) as place:
        told = await place.exec("yes | head -c 40000000")
        n_kept = len(told.stdout or "")
        findings = [finding.code for finding in place.findings]
    assert n_kept < 17 << 20
    assert findings == [FindingCode.OUTPUT_CUT]


def test_a_public_task_needs_a_network_that_the_engine_has(tmp_path: Path) -> None:
    async def go(**kwargs: object) -> tuple[list[FindingCode], str]:
        config = docker_config(kwargs=dict(kwargs))
        async with running(docker_order(tmp_path, config=config, network=PUBLIC)) as place:
            listed = await said(place, "ls /sys/class/net")
            return [finding.code for finding in place.findings], listed

    with pytest.raises(DockerError, match="no network 'bridge'; it has host, none: choose one"):
        asyncio.run(go())
    findings, listed = asyncio.run(go(network="host"))
    assert findings == [FindingCode.NETWORK_SHARED]
    assert listed != "lo"


async def test_it_says_what_it_runs_on_and_pins_it_by_its_id(
    tmp_path: Path, engine: Engine
) -> None:
    (identity,) = engine.lines_of("image", "inspect", "--format", "{{.Id}}", "small:1")
    async with running(docker_order(tmp_path)) as place:
        told = place.snapshot
        assert (told.runtime_image, told.compute_backend, set(told.tool_versions)) == (
            f"small@{identity}",
            "docker",
            {"kernel", "docker"},
        )


async def test_files_of_a_task_with_an_image_lie_in_its_working_directory(tmp_path: Path) -> None:
    order = docker_order(tmp_path)
    (order.environment_dir / "data.txt").write_text("given")
    async with running(order) as place:
        assert (await said(place, "cat data.txt")) == "given"


def test_an_image_that_does_not_exist_is_named(tmp_path: Path) -> None:
    task = TaskEnvironment(docker_image="proctor.invalid/nothing:1")
    with pytest.raises(ImageError, match="nothing:1: not in the engine, and cannot be pulled"):
        asyncio.run(DockerEnvironment(docker_order(tmp_path, task=task)).start(force_build=False))


def test_a_task_without_an_image_is_refused(tmp_path: Path) -> None:
    order = docker_order(tmp_path, task=TaskEnvironment())
    with pytest.raises(ImageError, match="neither a Dockerfile nor docker_image"):
        asyncio.run(DockerEnvironment(order).start(force_build=False))


async def test_stop_may_be_called_before_start_and_twice(tmp_path: Path) -> None:
    place = DockerEnvironment(docker_order(tmp_path))
    await place.stop(delete=True)
    await place.start(force_build=False)
    await place.stop(delete=True)
    await place.stop(delete=True)
    with pytest.raises(DockerError, match="does not run: start it first"):
        await place.exec("true")


@pytest.mark.parametrize("pause_sec", [0.0, 0.05, 0.2, 0.4])
async def test_a_start_that_is_cancelled_leaves_no_container(
    tmp_path: Path, engine: Engine, pause_sec: float
) -> None:
    place = DockerEnvironment(docker_order(tmp_path))
    starting = asyncio.ensure_future(place.start(force_build=False))
    await asyncio.wait([starting], timeout=pause_sec)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await place.stop(delete=True)
    assert engine.containers() == []


async def test_what_could_not_be_fetched_is_brought_in_at_the_end(
    tmp_path: Path, engine: Engine
) -> None:
    order = docker_order(tmp_path)
    async with running(order) as place:
        await place.exec("echo evidence > /logs/agent/left")
        (tmp_path / "file").touch()
        with pytest.raises(NotADirectoryError):
            await place.download_dir("/logs/agent", tmp_path / "file" / "below")
    assert (order.trial_paths.agent_dir / "left").read_text() == "evidence\n"
    assert engine.containers() == []


async def test_a_container_that_ends_under_a_command_is_an_error_and_no_result(
    tmp_path: Path, engine: Engine
) -> None:
    async with running(docker_order(tmp_path)) as place:
        waiting = asyncio.ensure_future(place.exec("sleep 600"))
        await asyncio.sleep(0.3)
        engine.docker("kill", *engine.containers())
        with pytest.raises(
            ContainerDiedError, match="the container ended while a command ran in it"
        ):
            await waiting


def with_entrypoint(place: Path, script: str, more: str = "") -> EnvironmentOrder:
    """An order of a task whose image starts this script, as ENTRYPOINT."""
    order = docker_order(place, task=TaskEnvironment(workdir="/elsewhere"))
    (order.environment_dir / "start.sh").write_text(f"#!/bin/sh\n{script}\n")
    (order.environment_dir / "start.sh").chmod(0o755)
    (order.environment_dir / "Dockerfile").write_text(
        "FROM small:1\nENV GREETING=hello\nWORKDIR /srv/app\nCOPY start.sh /start.sh\n"
        f'ENTRYPOINT ["/start.sh", "and"]\nCMD ["other"]\n{more}'
    )
    return order


async def test_the_entrypoint_of_an_image_runs_with_the_command_of_harbor(tmp_path: Path) -> None:
    script = 'echo "$GREETING $PWD $*" > /served; sleep 1000 &\nshift; exec "$@"'
    async with running(with_entrypoint(tmp_path, script)) as place:
        served = await said(place, "cat /served; pwd")
        assert served == "hello /srv/app and sh -c sleep infinity\n/elsewhere"
        assert await place.list_processes() == []
        every = await place.list_processes(with_services=True)
        assert "sleep 1000" in [each.command for each in every]
        await place.exec("exec >/dev/null 2>&1; rm /served; setsid sleep 2000 &")
        await until_running(place, "sleep 2000")
        await place.freeze()
        other = await place.open_frozen(place.trial_paths)
        try:
            assert (await said(other, "cat /served")).startswith("hello /srv/app")
            assert await other.list_processes() == []
        finally:
            await other.stop(delete=True)


async def test_a_healthcheck_waits_for_what_the_entrypoint_starts(tmp_path: Path) -> None:
    script = 'shift; (sleep 0.7; touch /ready) &\nexec "$@"'
    check = "HEALTHCHECK --interval=50ms --retries=99 CMD ls /ready\n"
    async with running(with_entrypoint(tmp_path, script, check)) as place:
        assert (await said(place, "ls /ready")) == "/ready"


def test_a_container_whose_entrypoint_ended_is_refused(tmp_path: Path) -> None:
    order = with_entrypoint(tmp_path, "exit 7")
    with pytest.raises(DockerError, match="its ENTRYPOINT ended with exit code 7; expected"):
        asyncio.run(DockerEnvironment(order).start(force_build=False))
