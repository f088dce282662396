"""Everything in a sandbox stands still while it is paused, and goes on afterwards."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from proctor.environments.sandbox.box import Box
from tests.environments.ghosts import GHOST
from tests.environments.sandbox.boxes import made, said, shell

COUNT = "n=0; while :; do n=$((n + 1)); echo $n > {}; done"
FORKS = """
import os, time
for _ in range(200):
    if os.fork() == 0:
        while True:
            open("/workspace/forked", "a").write("+")
            time.sleep(0.001)
            if os.fork():
                os._exit(0)
"""

# A shell with job control, in a terminal, with a command in the foreground.
TERMINAL = """
import os, pty
pid, terminal = pty.fork()
if pid == 0:
    os.execl("/bin/bash", "bash", "--norc", "-i")
os.write(terminal, b"/bin/bash /workspace/count.sh\\n")
while True:
    with open("/workspace/printed", "ab") as printed:
        printed.write(os.read(terminal, 4096))
"""


async def leave(box: Box, script: str, user: str = "root") -> None:
    """Start something that outlives its command."""
    await shell(box, f"setsid {script} >/dev/null 2>&1 </dev/null &", user=user)


async def appears(path: Path) -> None:
    async with asyncio.timeout(20):
        while not path.exists():
            await asyncio.sleep(0.01)


async def changes(path: Path) -> bool:
    """Whether a file is written within some seconds."""
    before = path.stat().st_mtime_ns
    for _ in range(500):
        if path.stat().st_mtime_ns != before:
            return True
        await asyncio.sleep(0.02)
    return False


async def stays(path: Path) -> bool:
    before = path.stat()
    await asyncio.sleep(0.3)
    after = path.stat()
    return (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


@pytest.mark.parametrize("shell_name", ["bash", "dash"])
async def test_a_writer_stands_still_and_goes_on(tmp_path: Path, shell_name: str) -> None:
    async with made(tmp_path) as box:
        written = tmp_path / "box" / "upper0" / "workspace" / "count"
        await leave(box, f"{shell_name} -c '{COUNT.format('/workspace/count')}'")
        await appears(written)
        assert await box.hold(is_still=True) == 0
        assert await stays(written)
        # What the runner asks for is done meanwhile.
        assert [each.command.split()[0] for each in await box.list_processes()] == [shell_name]
        await box.hold(is_still=False)
        assert await changes(written)


async def test_a_pause_of_nothing_ends_before_the_next_command(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        assert await box.hold(is_still=True) == 0
        await box.hold(is_still=False)
        written = tmp_path / "box" / "upper0" / "workspace" / "count"
        await leave(box, f"bash -c '{COUNT.format('/workspace/count')}'")
        await appears(written)
        assert await box.hold(is_still=True) == 0
        assert await stays(written)
        await box.hold(is_still=False)
        assert await changes(written)


async def test_what_was_stopped_before_stays_stopped(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        stopped, other = (
            tmp_path / "box" / "upper0" / "workspace" / name for name in ("one", "two")
        )
        await leave(box, f"bash -c 'echo $$ > /workspace/pid; {COUNT.format('/workspace/one')}'")
        await leave(box, f"bash -c '{COUNT.format('/workspace/two')}'")
        await appears(stopped)
        await appears(other)
        await shell(box, "kill -STOP $(cat /workspace/pid); sleep 0.5")
        assert await box.hold(is_still=True) == 0
        await box.hold(is_still=False)
        assert await changes(other)
        assert await stays(stopped)
        await shell(box, "kill -CONT $(cat /workspace/pid)")
        assert await changes(stopped)


async def test_processes_that_replace_themselves_are_stopped(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        written = tmp_path / "box" / "upper0" / "workspace" / "forked"
        (tmp_path / "box" / "upper0" / "workspace" / "forks.py").write_text(FORKS)
        await leave(box, "/usr/bin/python3 /workspace/forks.py")
        await appears(written)
        assert await box.hold(is_still=True) == 0
        assert await stays(written)
        assert len(await box.list_processes()) > 1
        await box.hold(is_still=False)
        assert await changes(written)


async def test_a_thread_that_outlived_the_first_one_is_stopped(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        written = tmp_path / "box" / "upper0" / "workspace" / "ghost"
        (tmp_path / "box" / "upper0" / "workspace" / "ghost.py").write_text(GHOST)
        await leave(box, "/usr/bin/python3 -S /workspace/ghost.py /workspace/ghost listening")
        await appears(written)
        assert await box.hold(is_still=True) == 0
        assert await stays(written)
        await box.hold(is_still=False)
        assert await changes(written)


async def test_a_shell_does_not_see_that_its_command_was_stopped(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        place = tmp_path / "box" / "upper0" / "workspace"
        (place / "terminal.py").write_text(TERMINAL)
        (place / "count.sh").write_text(COUNT.format("/workspace/count"))
        await leave(box, "/usr/bin/python3 /workspace/terminal.py")
        await appears(place / "count")
        for _ in range(10):
            assert await box.hold(is_still=True) == 0
            await box.hold(is_still=False)
            assert await changes(place / "count")
        assert "Stopped" not in (place / "printed").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="other users take subordinate ids")
async def test_another_users_process_is_stopped(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        written = tmp_path / "box" / "upper0" / "workspace" / "count"
        await leave(box, f"bash -c '{COUNT.format('/workspace/count')}'", "guest")
        await appears(written)
        assert await box.hold(is_still=True) == 0
        assert await stays(written)
        await box.hold(is_still=False)
        assert await changes(written)


async def test_commands_run_after_a_pause_of_nothing(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        began = time.monotonic()
        assert await box.hold(is_still=True) == 0
        await box.hold(is_still=False)
        took = time.monotonic() - began
        assert await said(box, "echo fine") == "fine"
        assert took < 1
