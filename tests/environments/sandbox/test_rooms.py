"""The verifier's room: what the agent left running cannot reach into it, whatever it tries."""

import asyncio
import os
from pathlib import Path

import pytest

from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.watch import watched
from proctor.errors import SandboxError
from tests.environments.sandbox.boxes import made, said, shell, use

FRESH = ("/tests", "/logs/verifier")
COMMAND_AND_ROOM = "00000008800404fb"
ROOM = "0000000800000000"

# A process of the agent that lives on and attacks every other process it sees, in every way.
ATTACK = r"""
import ctypes, glob, os, time
libc = ctypes.CDLL(None, use_errno=True)
os.setsid()
mine = os.getpid()
while True:
    for pid in [int(p) for p in os.listdir("/proc") if p.isdecimal() and int(p) not in (1, mine)]:
        for place in ("root/logs/verifier", "root/tests", "cwd"):
            try:
                with open(f"/proc/{pid}/{place}/reward.txt", "w") as file:
                    file.write("1")
                # What is in its own view of things it may have.
                if os.path.exists(f"/proc/{pid}/root/logs/verifier/held"):
                    open("/workspace/reached", "a").write(f"{pid} {place}\n")
            except OSError:
                pass
        for link in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                if os.readlink(link).startswith(("/logs/verifier", "/tests")):
                    open("/workspace/reached", "a").write(f"{pid} {link}\n")
            except OSError:
                pass
        for name in ("environ", "mem", "maps"):
            try:
                data = open(f"/proc/{pid}/{name}", "rb").read(64)
                if b"IN_ROOM" in open(f"/proc/{pid}/environ", "rb").read():
                    open("/workspace/reached", "a").write(f"{pid} {name}\n")
            except OSError:
                pass
        try:
            victim = b"victim" in open(f"/proc/{pid}/cmdline", "rb").read()
        except OSError:
            victim = False
        if victim and libc.ptrace(16, pid, 0, 0) == 0:
            open("/workspace/reached", "a").write(f"{pid} ptrace\n")
    for command in ("mv /logs /logs2", "mv /tests /tests2", "rmdir /tests", "mv /logs/verifier /v",
                    "rm -rf /logs", "ln -sfn /tmp /tests"):
        os.system(command + " 2>/dev/null")
    open("/workspace/rounds", "a").write("x")
"""


async def attack(box: Box, *, user: str = "root") -> None:
    """Start the attacker and wait until it is at work."""
    await shell(box, f"cat > /workspace/attack.py <<'END'\n{ATTACK}\nEND\n")
    command = "nohup /usr/bin/python3 /workspace/attack.py >/dev/null 2>&1 &"
    await shell(box, command, user=user)
    while await box.kind_of("/workspace/rounds") is None:
        await asyncio.sleep(0.01)


async def outlast(box: Box, room: int, user: str, script: str, su: str = "") -> str:
    """Run a script in the room that lasts until the attacker went round three times more."""
    wait = (
        "n=$(wc -c < /workspace/rounds); cd /logs/verifier; exec 7> /logs/verifier/held; "
        'until [ "$(wc -c < /workspace/rounds)" -gt $((n + 3)) ]; do sleep 0.01; done; cd /'
    )
    words = (*su.split(), "/bin/bash", "-c", f": victim; {wait}; {script}")
    command = Command(words, "/", {"IN_ROOM": "1"}, user, room)
    return (await box.run(command, timeout_sec=60)).output.decode()


async def test_a_root_process_of_the_agent_cannot_reach_into_a_room(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await attack(box)
        room = await box.open_room(FRESH)
        script = (
            "ls /tests /logs/verifier; echo 0 > /logs/verifier/reward.txt; cat /logs/verifier/*"
        )
        printed = await outlast(box, room, "root", script)
        reached = await said(box, "cat /workspace/reached 2>/dev/null")
    assert reached == ""
    assert printed == "/logs/verifier:\nheld\n\n/tests:\n0\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has one user")
async def test_who_changes_to_another_user_in_a_room_stays_out_of_reach(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await attack(box, user="guest")
        room = await box.open_room(FRESH)
        await outlast(
            box, room, "root", "true", su="setpriv --reuid 1000 --regid 1000 --clear-groups"
        )
        assert (await said(box, "cat /workspace/reached 2>/dev/null")) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has one user")
async def test_a_user_in_a_room_is_out_of_reach_of_itself_outside(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await attack(box, user="guest")
        room = await box.open_room(FRESH)
        await outlast(box, room, "guest", "true")
        assert (await said(box, "cat /workspace/reached 2>/dev/null")) == ""


async def test_commands_of_a_room_hold_one_capability_more(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        room = await box.open_room(FRESH)
        inheritable, *three, ambient = (
            await said(box, "grep ^Cap /proc/self/status | cut -f2", room=room)
        ).split()
    assert three == [COMMAND_AND_ROOM] * 3
    assert (inheritable, ambient) == (ROOM, ROOM)


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandbox has one user")
async def test_other_users_hold_only_that_one(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        room = await box.open_room(FRESH)
        script = 'grep -E "^Cap(Prm|Eff|Amb)" /proc/self/status | cut -f2'
        su = f"setpriv --reuid 1000 --regid 1000 --clear-groups bash -c '{script}'"
        inside, changed, outside = [
            (await said(box, script, user="guest", room=room)).split(),
            (await said(box, su, room=room)).split(),
            (await said(box, script, user="guest")).split(),
        ]
    assert inside == changed == [ROOM] * 3
    assert outside == ["0000000000000000"] * 3


async def test_what_was_planted_is_not_seen_in_a_room(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "echo 1 > /logs/verifier/reward.txt; echo evil > /tests/test.sh")
        room = await box.open_room(FRESH)
        seen = await said(box, "ls -A /tests /logs/verifier", room=room)
        outside = await said(box, "cat /logs/verifier/reward.txt /tests/test.sh")
    assert seen == "/logs/verifier:\n\n/tests:"
    assert outside == "1\nevil"


async def test_all_else_is_shared_with_a_room(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        room = await box.open_room(FRESH)
        await shell(box, "echo late > /workspace/answer; echo x > /logs/agent/log")
        seen = await said(box, "cat /workspace/answer /logs/agent/log; echo v > /etc/v", room=room)
        assert (seen, await said(box, "cat /etc/v")) == ("late\nx", "v")


async def test_files_go_to_and_come_from_the_room_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "test.sh").write_text("echo true tests")
    async with made(tmp_path) as box:
        room = await box.open_room(FRESH)
        await box.put(tmp_path / "test.sh", "/tests/test.sh", room=room)
        assert await box.kind_of("/tests/test.sh") is None
        assert await box.kind_of("/tests/test.sh", room=room) == "file"
        await shell(box, "bash /tests/test.sh > /logs/verifier/out", room=room)
        await box.make_directories(["/logs/verifier/more"], room=room)
        await box.take("/logs/verifier", tmp_path / "taken", room=room)
    assert (tmp_path / "taken/out").read_text() == "true tests\n"
    assert (tmp_path / "taken/more").is_dir()


async def test_each_room_is_new(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        first = await box.open_room(FRESH)
        await shell(box, "echo 1 > /logs/verifier/reward.txt", room=first)
        second = await box.open_room(FRESH)
        assert (first, second, await said(box, "ls -A /logs/verifier", room=second)) == (1, 2, "")


async def test_what_a_room_writes_is_on_disk_and_not_in_memory(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        room = await box.open_room(FRESH)
        await shell(box, "echo 1 > /logs/verifier/reward.txt", room=room)
    assert [path.read_text() for path in (tmp_path / "box/root.rooms").rglob("reward.txt")] == [
        "1\n"
    ]


def test_a_directory_that_was_not_guarded_cannot_be_fresh(tmp_path: Path) -> None:
    async def run(box: Box) -> None:
        await box.open_room(["/workspace"])

    with pytest.raises(SandboxError, match="/workspace: not one of the blueprint's guarded"):
        use(tmp_path, run)


def test_a_room_that_was_not_opened_is_refused(tmp_path: Path) -> None:
    async def run(box: Box) -> None:
        await said(box, "true", room=3)

    with pytest.raises(SandboxError, match="there is no room 3; 0 were opened"):
        use(tmp_path, run)


async def test_without_guarded_directories_things_are_as_harbor_leaves_them(tmp_path: Path) -> None:
    async with made(tmp_path, guarded=(), directories=("/logs/verifier",)) as box:
        printed = await said(box, "ls -d /tests; mv /logs /moved && mkdir /tests && echo moved")
    assert printed.splitlines()[-1] == "moved"


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel tells root alone who opens a file")
async def test_a_root_with_links_to_the_hosts_directories_is_not_taken_for_the_room(
    tmp_path: Path,
) -> None:
    rooms = tmp_path / "box" / "root.rooms"
    places = {str(rooms / f"1.{n}"): path for n, path in enumerate(FRESH)}
    links = " && ".join(f"ln -s {place} /jail{path}" for place, path in places.items())
    code = "import os, time; os.chroot('/jail'); open('/ready', 'w'); time.sleep(60)"
    async with made(tmp_path, guarded=FRESH) as box:
        await said(box, f"mkdir -p /jail/logs && {links}")
        await said(
            box,
            f'setsid /usr/bin/python3 -c "{code}" >/dev/null 2>&1 </dev/null & '
            "while ! test -e /jail/ready; do sleep 0.02; done",
        )
        room = await box.open_room(FRESH)
        with watched(places, box.pid) as opened:
            await said(box, "echo first > /logs/verifier/out; cat /tests/x", room=room)
            await said(box, "echo 1 > /logs/verifier/reward.txt", room=room)
        assert opened is not None
        assert "/logs/verifier/reward.txt" in [each.path for each in opened]
