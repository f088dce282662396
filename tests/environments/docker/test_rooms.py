"""The verifier's room: what the agent built is there, and nothing of the agent reaches in."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from proctor.environments.docker import environment as environment_module
from proctor.environments.docker.environment import DockerEnvironment
from proctor.environments.docker.room import Room
from proctor.trial.finding import FindingCode
from tests.environments.docker.containers import FRESH, docker_order, running
from tests.environments.docker.engine import Engine
from tests.environments.sandboxes import said

pytestmark = pytest.mark.usefixtures("cache", "engine")

type Deed[Told] = Callable[[DockerEnvironment, Room], Awaitable[Told]]


@pytest.fixture(params=["here", "there"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the engine's files can be seen by this process; an ordinary user's cannot."""
    if request.param == "there":
        monkeypatch.setattr(environment_module, "is_mounted_here", lambda _: False)
    return str(request.param)


async def opened(place: DockerEnvironment) -> Room:
    room = await place.open_room(FRESH)
    assert isinstance(room, Room)
    return room


def in_room[Told](order_place: Path, before: str, deed: Deed[Told]) -> Told:
    """Let the agent do something, open a room, and see."""

    async def go() -> Told:
        async with running(docker_order(order_place)) as place:
            await place.exec(before)
            room = await opened(place)
            return await deed(place, room)

    return asyncio.run(go())


@pytest.mark.usefixtures("where")
def test_what_the_agent_made_changed_and_deleted_is_so_in_the_room(tmp_path: Path) -> None:
    before = (
        "mkdir /new && echo new > /new/file; echo top > /top; echo x >> /etc/passwd; rm -rf /home;"
        "mkdir /real; ln -s /real /link; echo there > /link/there"
    )

    async def look(place: DockerEnvironment, room: Room) -> str:
        words = (
            "cat /new/file /top /link/there; tail -n 1 /etc/passwd; ls -d /home; echo r > /real/r"
        )
        told = await said(room, words)
        return f"{told} {await said(place, 'cat /real/r')}"

    told = in_room(tmp_path, before, look)
    assert told.split("\n")[:4] == ["new", "top", "there", "x"]
    assert "No such file" in told
    assert told.endswith(" r")


@pytest.mark.usefixtures("where")
def test_the_rooms_own_directories_are_new_writable_and_fetched(tmp_path: Path) -> None:
    before = "mkdir /tests; echo bad > /tests/planted; echo 1 > /logs/verifier/reward.txt"
    source = tmp_path / "tests"
    source.mkdir()
    (source / "test.sh").write_text("#!/bin/bash\nls /tests /logs/verifier\necho 0 > $1\n")

    async def look(place: DockerEnvironment, room: Room) -> tuple[str, str, str]:
        planted = await place.list_files(FRESH, 10)
        assert [file.path for file in planted] == ["/tests/planted", "/logs/verifier/reward.txt"]
        await room.upload_dir(source, "/tests")
        script = "/tests/test.sh"
        done = await room.exec_script(f"{script} /logs/verifier/reward.txt", script)
        await room.download_dir("/logs/verifier", tmp_path / "out")
        reward = (tmp_path / "out" / "reward.txt").read_text()
        return done.stdout or "", reward, await said(place, "cat /logs/verifier/reward.txt")

    told, reward, outside = in_room(tmp_path, before, look)
    assert told.split() == ["/logs/verifier:", "/tests:", "test.sh"]
    assert (reward, outside) == ("0\n", "1")


def test_services_of_the_agent_are_seen_from_the_room(tmp_path: Path) -> None:
    before = "setsid sleep 1234 >/dev/null 2>&1 & echo shared > /dev/shm/shared"

    async def look(_: DockerEnvironment, room: Room) -> str:
        return await said(room, "cat /dev/shm/shared; grep -al '^sleep.1234' /proc/[0-9]*/cmdline")

    told = in_room(tmp_path, before, look)
    assert told.startswith("shared\n/proc/")


def test_a_file_is_renamed_from_one_directory_to_another(tmp_path: Path) -> None:
    # `mv` would copy it, and `ln` fail, if the directories were different mounts.
    moves = (
        "before=$(ls -i /app/f); mv /app/f /tmp/f; after=$(ls -i /tmp/f);"
        "[ ${before%% *} = ${after%% *} ] && ln /tmp/f /etc/f && cat /etc/f"
    )

    async def look(place: DockerEnvironment, room: Room) -> tuple[str, str, str]:
        script = await room.exec_script(moves, "/tests/none")
        later = await said(room, "grep -c localhost /etc/hosts; mv /tmp/f /app/f; cat /app/f")
        return script.stdout or "", later, await said(place, "cat /app/f /etc/f")

    first, later, outside = in_room(tmp_path, "mkdir -p /app; echo moved > /app/f", look)
    assert first == "moved\n"
    assert (later.split()[1:], outside.split()) == (["moved"], ["moved", "moved"])
    assert int(later.split()[0]) > 0


def test_the_agents_root_is_the_rooms_and_its_own_directories_are_guarded(tmp_path: Path) -> None:
    async def look(place: DockerEnvironment, room: Room) -> tuple[str, str, str]:
        script = "echo /*; ls /tests; ls -d /proc/self /dev/null /sys"
        seen = (await room.exec_script(script, "/tests/none")).stdout or ""
        agents = await said(place, "echo /*")
        tried = "mv /tests /t; mv /logs /l; mv /logs/verifier /v; rm -rf /tests"
        return seen, agents, (await place.exec(tried)).stdout or ""

    seen, agents, tried = in_room(tmp_path, "rm -rf /tests; ln -s /etc /tests; mkdir /own", look)
    assert seen.splitlines() == [agents, "/dev/null", "/proc/self", "/sys"]
    assert set(agents.split()) >= {"/own", "/tests", "/logs", "/etc"}
    assert tried.count("busy") == 4, tried


ATTACKS = (
    "mkdir -p /tests /logs/verifier; echo 1 > /logs/verifier/reward.txt",
    "for p in /proc/[0-9]*; do echo 1 > $p/root/logs/verifier/reward.txt;"
    " echo 1 > $p/cwd/../logs/verifier/reward.txt; done",
    "for f in /proc/[0-9]*/fd/*; do case $(readlink $f) in *verifier*) echo 1 > $f;; esac; done",
    "rm -rf /logs/verifier /tests; ln -sfn / /logs/verifier; ln -sfn / /tests",
)
"""By its path, through /proc, through open files, by links in its place; all at the same time."""


def survivors(*attacks: str) -> str:
    """A command that leaves processes behind which attack for as long as they live."""
    loops = [f"while :; do {{ {attack}; }} 2>/dev/null; done" for attack in attacks]
    return "\n".join(f"setsid bash -c '{loop}' </dev/null >/dev/null 2>&1 &" for loop in loops)


def test_survivors_who_are_root_cannot_write_the_reward(tmp_path: Path) -> None:
    source = tmp_path / "tests"
    source.mkdir()
    (source / "test.sh").write_text("sleep 1; echo 0 > /logs/verifier/reward.txt; sleep 0.5\n")

    async def look(place: DockerEnvironment, room: Room) -> dict[str, str]:
        assert len(await place.list_processes()) >= len(ATTACKS)
        await room.upload_dir(source, "/tests")
        done = await room.exec_script("bash /tests/test.sh", "/tests/test.sh")
        assert done.return_code == 0, done.stdout
        await room.download_dir("/logs/verifier", tmp_path / "out")
        return {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}

    assert in_room(tmp_path, survivors(*ATTACKS), look) == {"reward.txt": "0\n"}


def test_a_top_level_entry_that_turns_into_a_link_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the host")
    flip = f"mv /app /aside/app; ln -s {tmp_path} /app; rm /app; mv /aside/app /app"

    async def look(place: DockerEnvironment, _: Room) -> list[str]:
        told = []
        for _n in range(4):
            room = await opened(place)
            done = await room.exec_script("cat /app/secret", "/tests/none")
            told.append(done.stdout or "")
        return told

    told = in_room(tmp_path, f"mkdir -p /app /aside\n{survivors(flip)}", look)
    assert not any("of the host" in each for each in told)


def test_a_verifier_of_another_user_is_out_of_reach_too(tmp_path: Path) -> None:
    async def look(_: DockerEnvironment, room: Room) -> tuple[str, str]:
        room.default_user = "ada"
        words = "id -un; sleep 0.5; echo 0 > /logs/verifier/reward.txt; sleep 0.3"
        done = await room.exec_script(words, "/tests/none")
        await room.download_dir("/logs/verifier", tmp_path / "out")
        return done.stdout or "", (tmp_path / "out" / "reward.txt").read_text()

    assert in_room(tmp_path, survivors(ATTACKS[1]), look) == ("ada\n", "0\n")


def test_a_script_that_takes_too_long_is_dead_and_its_room_too(
    tmp_path: Path, engine: Engine
) -> None:
    async def look(place: DockerEnvironment, room: Room) -> list[str]:
        with pytest.raises(RuntimeError, match="Command timed out after 1 seconds"):
            await room.exec_script("sleep 600", "/tests/none", timeout_sec=1)
        return [process.command for process in await place.list_processes()]

    assert in_room(tmp_path, "true", look) == []


async def test_where_no_room_can_be_had_the_directories_are_emptied_and_that_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment_module, "_LOOK", "{{.State.Pid}} ")
    async with running(docker_order(tmp_path)) as place:
        await place.exec("mkdir /tests; echo bad > /tests/planted; ln -s /etc /logs/verifier/e")
        room = await place.open_room(FRESH)
        told = await said(room, "ls /tests /logs/verifier; ls -d /etc")
        findings = [finding.code for finding in place.findings]
    assert told.split() == ["/logs/verifier:", "/tests:", "/etc"]
    assert findings == [FindingCode.VERIFIER_NOT_APART]


def test_a_name_may_hold_whatever_names_may_hold(tmp_path: Path) -> None:
    async def look(_: DockerEnvironment, room: Room) -> str:
        return await said(room, "cat /a,*/file")

    assert in_room(tmp_path, "mkdir $'/a,b\"\\nc='; echo odd > $'/a,b\"\\nc=/file'", look) == "odd"
