"""The sandbox as an environment of a trial: commands, files, rooms."""

import asyncio
import os
import platform
import re
from pathlib import Path

import pytest

from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.errors import HealthcheckError, SandboxError
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from proctor.traces.trajectory import load_trajectory
from proctor.trial.environment import EnvironmentOrder, ExecResult, Watched
from proctor.trial.finding import FindingCode
from proctor.trial.output_log import OutputLog
from proctor.trial.paths import TrialPaths
from tests.environments.orders import order_of
from tests.environments.sandboxes import found_in, running, said, several_users, until_running

pytestmark = pytest.mark.usefixtures("cache")


async def test_a_command_runs_in_bash_as_root_with_both_streams_in_one(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        assert (await sandbox.exec("[[ 1 ]] && id -un; echo wrong >&2; exit 3")) == ExecResult(
            "root\nwrong\n", None, 3
        )


async def test_output_is_recorded_while_commands_run_and_not_in_rooms(tmp_path: Path) -> None:
    order = order_of(tmp_path)
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


async def test_no_output_is_none_and_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        assert [(await sandbox.exec(text)).stdout for text in ("true", r"printf 'a\xff'")] == [
            None,
            "a�",
        ]


def test_variables_come_from_the_task_and_the_call_and_not_from_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "yes")

    async def go() -> str:
        async with running(order_of(tmp_path, env={"A": "task", "B": "task"})) as sandbox:
            return await said(sandbox, "env", env={"B": "call"})

    lines = asyncio.run(go()).splitlines()
    assert {"A=task", "B=call"} <= set(lines)
    assert {line.partition("=")[0] for line in lines} <= {
        *("A", "B", "PATH", "HOME", "PWD", "SHLVL", "_")
    }


async def test_commands_run_where_the_task_says_and_else_where_the_call_says(
    tmp_path: Path,
) -> None:
    task = TaskEnvironment(workdir="/work/here")
    async with running(order_of(tmp_path, task=task)) as sandbox:
        assert [await said(sandbox, "pwd"), await said(sandbox, "pwd", cwd="/tmp")] == [
            "/work/here",
            "/tmp",
        ]


@several_users
async def test_the_user_is_the_one_given_else_the_default_one_else_root(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        users = [await said(sandbox, "id -un")]
        sandbox.default_user = "nobody"
        users.append(await said(sandbox, "id -un"))
        users.append(await said(sandbox, "id -u", user=1))
        assert users == ["root", "nobody", "1"]


@several_users
async def test_everybody_can_write_to_the_log_directories(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        assert (
            await said(sandbox, "touch /logs/{agent,verifier,artifacts}/x", user="nobody")
        ) == ""


async def test_a_command_that_takes_too_long_is_dead_and_says_so_in_harbors_words(
    tmp_path: Path,
) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        with pytest.raises(RuntimeError, match=r"^Command timed out after 1 seconds$"):
            await sandbox.exec("sleep 1000 & sleep 1000", timeout_sec=1)
        assert [process.command for process in await sandbox.list_processes()] == []


async def test_a_cancelled_command_is_dead_and_a_service_in_a_session_of_its_own_lives_on(
    tmp_path: Path,
) -> None:
    async with running(order_of(tmp_path)) as sandbox:

        async def commands() -> list[str]:
            return [process.command for process in await sandbox.list_processes()]

        script = "setsid sleep 1001 & sleep 1000"
        command = asyncio.ensure_future(sandbox.exec(script))
        while not {"sleep 1000", "sleep 1001"} <= set(await commands()):
            pass
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        assert (await commands()) == ["sleep 1001"]


async def test_output_that_is_too_long_is_cut_and_that_is_a_finding(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        text = await said(sandbox, "head -c 20000000 /dev/zero | tr '\\0' x")
        codes = [finding.code for finding in found_in(sandbox)]
    assert codes == [FindingCode.OUTPUT_CUT]
    last = re.fullmatch(r"\[([\d,]+) bytes of output were cut here\]", text.splitlines()[-1])
    assert last is not None
    assert int(last[1].replace(",", "")) + text.count("x") == 20_000_000


async def test_files_and_directories_go_in_and_come_out(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "run.sh").write_text("echo ran")
    (source / "deep" / "run.sh").chmod(0o755)
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.upload_dir(source, "/new/place")
        await sandbox.upload_file(source / "deep" / "run.sh", "/other/name.sh")
        text = await said(sandbox, "/new/place/deep/run.sh; /other/name.sh")
        kinds = [
            await sandbox.is_dir("/new/place"),
            await sandbox.is_file("/other/name.sh"),
            await sandbox.is_file("/new"),
            await sandbox.is_dir("/nowhere"),
        ]
        await sandbox.download_dir("/new", tmp_path / "all")
        await sandbox.download_file("/other/name.sh", tmp_path / "one.sh")
        assert (text, kinds) == ("ran\nran", [True, True, False, False])
    assert (tmp_path / "all" / "place" / "deep" / "run.sh").read_text() == "echo ran"
    assert (tmp_path / "one.sh").read_text() == "echo ran"


async def test_files_that_cannot_be_collected_are_a_finding(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.exec("cd /logs/agent; mkfifo pipe; echo good > good.txt")
        await sandbox.download_dir("/logs/agent", tmp_path / "out")
        ((code, message),) = [(finding.code, finding.message) for finding in found_in(sandbox)]
    assert code is FindingCode.FILES_REFUSED
    assert "pipe" in message
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == ["good.txt"]


async def test_a_room_has_a_verifier_directory_that_the_agent_does_not_reach(
    tmp_path: Path,
) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.exec("echo 1 > /logs/verifier/reward.txt; echo built > /tmp/product")
        room = await sandbox.open_room(["/tests", "/logs/verifier"])
        await room.upload_file(Path(__file__), "/tests/test.py")
        await room.exec("echo 0 > /logs/verifier/reward.txt")
        await room.download_dir("/logs/verifier", sandbox.trial_paths.verifier_dir)
        assert {
            "shared": await said(room, "cat /tmp/product"),
            "tests of the agent": await said(sandbox, "ls /tests"),
            "reward of the agent": await said(sandbox, "cat /logs/verifier/reward.txt"),
            "reward": sandbox.trial_paths.reward_text_path.read_text().strip(),
        } == {
            "shared": "built",
            "tests of the agent": "",
            "reward of the agent": "1",
            "reward": "0",
        }


@several_users
async def test_each_room_is_new_and_keeps_the_default_user(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        sandbox.default_user = "nobody"
        first = await sandbox.open_room(["/logs/verifier"])
        await first.exec("echo 1 > /logs/verifier/reward.txt")
        second = await sandbox.open_room(["/logs/verifier"])
        await first.stop(delete=True)
        assert [await said(second, "id -un; ls /logs/verifier")] == ["nobody"]


async def test_it_says_what_it_runs_on(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        assert isinstance(sandbox, Watched)
        assert re.fullmatch(
            r"host:[a-z]+(-[\w.]+)?@sha256:[0-9a-f]{64}", sandbox.snapshot.runtime_image
        )
        assert sandbox.snapshot.compute_backend == "sandbox"
        assert sandbox.snapshot.tool_versions == {"kernel": platform.release()}
        assert (sandbox.os, sandbox.capabilities.mounted) == ("linux", False)
        assert sandbox.capabilities.disable_internet


def test_a_sandbox_that_does_not_run_says_so(tmp_path: Path) -> None:
    sandbox = SandboxEnvironment(order_of(tmp_path))
    with pytest.raises(SandboxError, match="trial-1: the sandbox does not run: start it first"):
        asyncio.run(sandbox.exec("true"))


def test_a_directory_that_is_not_there_is_not_uploaded(tmp_path: Path) -> None:
    async def go() -> None:
        async with running(order_of(tmp_path)) as sandbox:
            await sandbox.upload_dir(tmp_path / "nowhere", "/x")

    with pytest.raises(NotADirectoryError):
        asyncio.run(go())


@pytest.mark.skipif(os.geteuid() != 0, reason="to an ordinary user's sandbox /usr is nobody's")
async def test_the_root_is_owned_and_open_as_on_any_machine(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as sandbox:
        assert (
            await said(sandbox, "stat -c '%a %u %n' / /tmp /usr", user="nobody")
        ) == "755 0 /\n1777 0 /tmp\n755 0 /usr"


async def test_the_healthcheck_of_a_dockerfile_has_to_succeed_before_the_agent_runs(
    tmp_path: Path,
) -> None:
    order = order_of(tmp_path)
    dockerfile = order.environment_dir / "Dockerfile"
    check = "HEALTHCHECK --interval=10ms --retries=2 CMD"
    dockerfile.write_text(f"FROM absent\nENV OK=/tmp\n{check} touch /asked; test -d $OK\n")
    async with running(order) as sandbox:
        assert await said(sandbox, "ls /asked") == "/asked"
    dockerfile.write_text(f"FROM absent\n{check} false\n")
    with pytest.raises(HealthcheckError, match="failed after 2 consecutive retries"):
        await SandboxEnvironment(order).start(force_build=False)


SERVICE = """#!/bin/sh
echo "$GREETING $PWD $(id -un) $*" > /tmp/served
sleep 1000 &
shift
exec "$@"
"""


def write_service(order: EnvironmentOrder, script: str, more: str = "") -> None:
    """Let an image start this script, as ENTRYPOINT."""
    (order.environment_dir / "start.sh").write_text(script)
    (order.environment_dir / "Dockerfile").write_text(
        "FROM absent\nENV GREETING=hello\nWORKDIR /srv/app\nCOPY --chmod=755 start.sh /start.sh\n"
        f'ENTRYPOINT ["/start.sh", "and"]\nCMD ["other"]\n{more}'
    )


async def test_the_entrypoint_of_an_image_runs_with_the_command_of_harbor(tmp_path: Path) -> None:
    order = order_of(tmp_path, task=TaskEnvironment(workdir="/elsewhere"))
    write_service(order, SERVICE)
    async with running(order) as sandbox:
        served = await said(sandbox, "cat /tmp/served")
        assert served == "hello /srv/app root and sh -c sleep infinity"
        # Its processes are the image's; the agent's are listed.
        assert await sandbox.list_processes() == []
        names = [each.command for each in await sandbox.list_processes(with_services=True)]
        assert "sleep infinity" in names
        assert "sleep 1000" in names
        await sandbox.exec("setsid sleep 2000 < /dev/null > /dev/null 2>&1 &")
        await until_running(sandbox, "sleep 2000")


async def test_a_sandbox_ends_with_its_entrypoint_as_a_container_does(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    write_service(order, "#!/bin/sh\necho no such database\nexit 7\n")
    ended = r"ended with exit code 7 \(no such database\); expected that it runs its arguments"
    with pytest.raises(SandboxError, match=ended):
        await SandboxEnvironment(order).start(force_build=False)
    write_service(order, "#!/bin/sh\nwhile [ ! -e /tmp/stop ]; do sleep 0.05; done\nexit 3\n")
    async with running(order) as sandbox:
        assert await said(sandbox, "echo works") == "works"
        with pytest.raises(SandboxError, match="its ENTRYPOINT ended with exit code 3"):
            await sandbox.exec("touch /tmp/stop; sleep 60")
        with pytest.raises(SandboxError, match="its ENTRYPOINT ended with exit code 3"):
            await sandbox.exec("true")


async def test_an_agent_cannot_end_a_sandbox_by_killing_its_entrypoint(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    write_service(order, SERVICE)
    async with running(order) as sandbox:
        await sandbox.exec("pkill -9 sleep; kill -9 -1")
        assert await said(sandbox, "echo works") == "works"
        await until_running(sandbox, with_services=True)
    write_service(order, "#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(SandboxError, match="its ENTRYPOINT ended with exit code 137"):
        await SandboxEnvironment(order).start(force_build=False)


async def test_a_healthcheck_waits_for_what_the_entrypoint_starts(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    script = '#!/bin/sh\nshift; (sleep 0.7; touch /tmp/ready) &\nexec "$@"\n'
    write_service(order, script, "HEALTHCHECK --interval=50ms --retries=99 CMD ls /tmp/ready\n")
    async with running(order) as sandbox:
        assert await said(sandbox, "ls /tmp/ready") == "/tmp/ready"


async def test_the_services_of_an_image_run_in_sandboxes_with_its_frozen_files(
    tmp_path: Path,
) -> None:
    order = order_of(tmp_path)
    write_service(order, SERVICE)
    async with running(order) as sandbox:
        await sandbox.exec("rm /tmp/served")
        await sandbox.freeze()
        other = await sandbox.open_frozen(TrialPaths(tmp_path / "other"))
        try:
            assert (await said(other, "cat /tmp/served")).startswith("hello /srv/app")
            assert await other.list_processes() == []
        finally:
            await other.stop(delete=True)
