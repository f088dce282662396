"""Which processes live, what they execute, and which of them listen."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.environments.sandbox.box import Box
from proctor.environments.sandbox.init import is_alive, signal_group
from proctor.environments.sandbox.processes import Lister, find_living, read_stat
from proctor.trial.environment import Process
from tests.environments.ghosts import GHOST
from tests.environments.sandbox.boxes import made, said, shell, use

PYTHON = "/usr/bin/python3"
REAL_PYTHON = os.path.realpath(PYTHON)


@pytest.fixture
def ghost(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group, whose first thread has ended and whose second one lives."""
    words = [sys.executable, "-S", "-c", GHOST, str(tmp_path / "written"), "listening"]
    with subprocess.Popen(words, start_new_session=True, cwd=tmp_path) as process:
        while read_stat(f"/proc/{process.pid}")[1][0] != b"Z":
            time.sleep(0.01)
        yield process
        process.kill()


def test_a_group_is_alive_while_a_thread_of_it_is(ghost: subprocess.Popen[bytes]) -> None:
    signal_group(ghost.pid, signal.SIGTERM)
    assert is_alive(ghost.pid)
    signal_group(ghost.pid, signal.SIGKILL)
    assert ghost.wait(10) == -signal.SIGKILL
    assert not is_alive(ghost.pid)


async def test_a_process_that_called_chroot_has_its_paths_in_the_sandbox(tmp_path: Path) -> None:
    code = "import os, time; os.chroot('/jail'); open('/ready', 'w'); time.sleep(60)"
    async with made(tmp_path) as box:
        await said(
            box, f'mkdir -p /jail /app; echo "{code}" > /app/a.py; echo "{code}" > /app/b.py'
        )
        await said(box, "mkdir -p /jail/app; cp /app/b.py /jail/app/b.py")
        for name in ("a", "b"):
            start = (
                f"rm -f /jail/ready; setsid {PYTHON} /app/{name}.py >/dev/null 2>&1 </dev/null &"
            )
            await said(box, f"{start} while ! test -e /jail/ready; do sleep 0.02; done")
        found = [(each.executable, each.script) for each in await box.list_processes()]
    assert found == [(REAL_PYTHON, "/app/a.py"), (REAL_PYTHON, "/jail/app/b.py")]


def test_a_zombie_of_one_thread_is_dead() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    while read_stat(f"/proc/{process.pid}")[1][0] != b"Z":
        time.sleep(0.01)
    assert not is_alive(process.pid)
    process.wait()


def test_a_process_is_described_by_a_thread_that_lives(
    tmp_path: Path, ghost: subprocess.Popen[bytes]
) -> None:
    name, fields = read_stat(f"/proc/{ghost.pid}")
    place = find_living(ghost.pid, fields)
    assert place is not None
    assert place.startswith(f"/proc/{ghost.pid}/task/")
    facts = Lister().describe(place, name, os.getuid())
    assert facts.command.startswith(f"{sys.executable} -S -c")
    assert facts.executable == os.path.realpath(sys.executable)
    # The code is no path; the first argument that is one is what the ghost writes.
    assert facts.script == str(tmp_path / "written")
    assert facts.listens


async def put_ghost(box: Box, tmp_path: Path) -> None:
    (tmp_path / "ghost.py").write_text(GHOST)
    await box.put(tmp_path / "ghost.py", "/tmp/ghost.py")


async def until_haunted(box: Box, *files: str) -> None:
    """Wait until ghosts write to these files."""
    while not all([await box.kind_of(file) for file in files]):
        await asyncio.sleep(0.02)
    # Both threads live for a moment.
    count = "cat /proc/[0-9]*/stat | grep -c '(python3) Z'"
    while await said(box, count) != str(len(files)):
        await asyncio.sleep(0.02)


async def test_a_command_that_times_out_or_is_cancelled_is_dead_with_all_its_threads(
    tmp_path: Path,
) -> None:
    async with made(tmp_path) as box:
        await put_ghost(box, tmp_path)
        leading = asyncio.ensure_future(shell(box, f"exec {PYTHON} /tmp/ghost.py /tmp/one"))
        behind = f"{PYTHON} /tmp/ghost.py /tmp/two & exec sleep 1000"
        other = asyncio.ensure_future(asyncio.wait_for(shell(box, behind), 0.5))
        await until_haunted(box, "/tmp/one", "/tmp/two")
        leading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leading
        with pytest.raises(TimeoutError):
            await other
        left = await box.list_processes()
        written = await said(box, "cat /tmp/one /tmp/two | wc -c")
        await asyncio.sleep(0.1)
        assert (left, written == await said(box, "cat /tmp/one /tmp/two | wc -c")) == ([], True)


def test_a_ghost_that_left_the_group_or_outlived_its_command_is_listed(tmp_path: Path) -> None:
    async def run(box: Box) -> list[Process]:
        await put_ghost(box, tmp_path)
        quiet = ">/dev/null 2>&1 &"
        command = f"{PYTHON} ghost.py /tmp/one apart listening {quiet}"
        await shell(box, f"cd /tmp; {command} {PYTHON} /tmp/ghost.py /tmp/two {quiet}")
        await until_haunted(box, "/tmp/one", "/tmp/two")
        return await box.list_processes()

    found = sorted(use(tmp_path, run), key=lambda each: each.listens)
    assert [(each.executable, each.script, each.listens) for each in found] == [
        (REAL_PYTHON, "/tmp/ghost.py", False),
        (REAL_PYTHON, "/tmp/ghost.py", True),
    ]


SERVER = """
import ctypes, os, socket, sys, time

if sys.argv[1] == "udp":
    door = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    door.bind(("::1", 0))
else:
    door = socket.create_server(("127.0.0.1", 0))
if "hidden" in sys.argv:
    ctypes.CDLL(None).prctl(4, 0)
open("/tmp/up." + sys.argv[1], "w").close()
time.sleep(1000)
"""


def test_a_process_that_listens_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    async def run(box: Box) -> dict[str, Process]:
        (tmp_path / "server.py").write_text(SERVER)
        await box.put(tmp_path / "server.py", "/tmp/server.py")
        for word in ("tcp", "udp"):
            await shell(box, f"{PYTHON} /tmp/server.py {word} >/dev/null 2>&1 &", user="guest")
        await shell(box, f"{PYTHON} /tmp/server.py hid hidden >/dev/null 2>&1 &", user="guest")
        await shell(
            box,
            "cp /bin/sleep /tmp/mine; /tmp/mine 1001 >/dev/null 2>&1 & "
            "until [ /proc/$!/exe -ef /tmp/mine ]; do :; done; rm /tmp/mine",
        )
        await shell(box, "exec sleep 1002 >/dev/null 2>&1 &", user="guest")
        while not all([await box.kind_of(f"/tmp/up.{word}") for word in ("tcp", "udp", "hid")]):
            await asyncio.sleep(0.02)
        return {each.command.split()[-1]: each for each in await box.list_processes()}

    found = use(tmp_path, run)
    assert {word: each.listens for word, each in found.items()} == {
        "tcp": True,
        "udp": True,
        "1001": False,
        "1002": False,
        # Its files are hidden: it may be the one that holds a socket of its user.
        "hidden": True,
    }
    assert (found["tcp"].executable, found["tcp"].script) == (REAL_PYTHON, "/tmp/server.py")
    assert found["hidden"].executable is None
    assert found["1001"].executable == "/tmp/mine (deleted)"
    assert found["1002"].script is None
