"""What is left when the runner, the zygote or a sandbox ends: nothing."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.environments.sandbox.box import shared_zygote, start_zygote
from proctor.errors import SandboxError
from tests.environments.sandbox.boxes import MADE_FOR, make_blueprint, opened, said, shell

ROOT = Path(__file__).resolve().parents[3]
WAIT_MS = 30_000

RUNNER = """
import asyncio, sys
from pathlib import Path
from tests.environments.sandbox.boxes import make_blueprint, shell
from proctor.environments.sandbox.box import shared_zygote

async def main():
    zygote = await shared_zygote()
    boxes = [await zygote.spawn(make_blueprint(Path(sys.argv[1]) / str(n))) for n in range(3)]
    for box in boxes:
        await shell(box, "setsid sleep 1000 >/dev/null 2>&1 &")
        await box.open_room(["/tests"])
    print(*(box.pid for box in boxes), flush=True)
    await shell(boxes[0], "sleep 1000")

asyncio.run(main())
"""


def wait_for_end(handle: int) -> None:
    """Wait until a process is dead."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    assert poll.poll(WAIT_MS), "it lives on"


def processes_with(root: Path) -> list[str]:
    """Processes in the sandboxes that were made below a path."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(root) in (process / f"root{MADE_FOR}").read_text():
                found.append(process.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("n_unread", [0, 3])
def test_what_pid_1_says_of_its_end_is_in_the_error(tmp_path: Path, n_unread: int) -> None:
    """Also where it left questions unread, of which the kernel tells first."""

    async def go() -> list[str]:
        async with opened(make_blueprint(tmp_path / "a")) as box:
            asked = asyncio.ensure_future(shell(box, "sleep 60"))
            await shell(box, "true")
            # A request without a number cannot be answered: it stands for any fault of PID 1's own.
            await box._router._link.send({"op": "open_room"})
            unread = [box._ask({"op": "open_room"}) for _ in range(n_unread)]
            ends = await asyncio.gather(asked, *unread, return_exceptions=True)
            return [str(one) for one in ends]

    last_words = "sandbox a: its PID 1 is gone, with 1: PID 1 failed: KeyError: 'id'"
    said = set(asyncio.run(go()))
    assert last_words in said
    # A question that was sent when it was gone already is told by the kernel alone.
    kernels = ("Broken pipe", "Connection reset by peer")
    assert said <= {last_words, *(f"the sandbox's PID 1 is gone: {word}" for word in kernels)}


def test_a_pid_1_that_is_killed_before_it_is_up_is_an_error_that_says_so(tmp_path: Path) -> None:
    async def go() -> None:
        zygote = await start_zygote()
        # It waits there for somebody who reads.
        (tmp_path / "group").mkdir()
        os.mkfifo(tmp_path / "group" / "cgroup.procs")
        # With ids of its own, the zygote enters the group for it and would be the one that waits.
        groups = (str(tmp_path / "group"),)
        blueprint = make_blueprint(tmp_path / "a", cgroups=groups, first_id=0)
        try:
            spawning = asyncio.ensure_future(zygote.spawn(blueprint))
            while not zygote._boxes:
                await asyncio.sleep(0)
            (box,) = zygote._boxes.values()
            os.kill(box.pid, signal.SIGKILL)
            await spawning
        finally:
            await zygote.close()

    with pytest.raises(
        SandboxError, match="a could not be built: its PID 1 was killed: it was stopped"
    ):
        asyncio.run(go())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_runner_that_is_killed_leaves_no_process_and_no_mount(
    tmp_path: Path, number: signal.Signals
) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(tmp_path)], stdout=subprocess.PIPE, env=environment
    ) as runner:
        assert runner.stdout is not None
        handles = [os.pidfd_open(int(word)) for word in runner.stdout.readline().split()]
        assert len(handles) == 3
        runner.send_signal(number)
        for handle in handles:
            wait_for_end(handle)
            os.close(handle)
    # The dead are reaped by whoever their parent is by then; their mounts went with them.
    for name in processes_with(tmp_path):
        pytest.fail(f"{name}: {Path('/proc', name, 'cmdline').read_bytes()!r} is left")


async def test_a_zygote_that_is_killed_takes_its_sandboxes_along(tmp_path: Path) -> None:
    zygote = await start_zygote()
    box = await zygote.spawn(make_blueprint(tmp_path / "box"))
    handle = os.pidfd_open(box.pid)
    parent = Path(f"/proc/{box.pid}/stat").read_text().rpartition(")")[2].split()[1]
    waiting = asyncio.ensure_future(shell(box, "sleep 1000"))
    await asyncio.sleep(0.05)
    os.kill(int(parent), signal.SIGKILL)
    with pytest.raises(SandboxError, match="was forked from is gone"):
        await waiting
    await box.kill()
    wait_for_end(handle)
    os.close(handle)
    with pytest.raises(SandboxError):
        await zygote.spawn(make_blueprint(tmp_path / "late"))
    await zygote.close()


async def test_a_new_shared_zygote_replaces_a_dead_one(tmp_path: Path) -> None:
    first = await shared_zygote()
    await first.close()
    second = await shared_zygote()
    assert second is not first
    box = await second.spawn(make_blueprint(tmp_path / "box"))
    assert (await said(box, "echo up")) == "up"


async def test_a_killed_sandbox_leaves_no_process(tmp_path: Path) -> None:
    zygote = await start_zygote()
    box = await zygote.spawn(make_blueprint(tmp_path / "box"))
    await shell(box, "for n in 1 2 3; do setsid sleep 1000 >/dev/null 2>&1 & done")
    assert processes_with(tmp_path)
    await box.kill()
    assert processes_with(tmp_path) == []
    await zygote.close()


async def test_sandboxes_that_ended_hold_no_files_open(tmp_path: Path) -> None:
    zygote = await start_zygote()

    async def one(name: str) -> tuple[int, int]:
        box = await zygote.spawn(make_blueprint(tmp_path / name))
        await shell(box, "setsid sleep 1000 & echo x")
        await box.put(ROOT / "Makefile", "/tmp/")
        await box.take("/tmp", tmp_path / f"{name}.taken")
        parent = Path(f"/proc/{box.pid}/stat").read_text().rpartition(")")[2].split()[1]
        await box.kill()
        n_theirs = len(list(Path("/proc", parent, "fd").iterdir()))
        return len(list(Path("/proc/self/fd").iterdir())), n_theirs

    first = await one("first")
    last = [await one(str(number)) for number in range(5)][-1]
    await zygote.close()
    assert (last[0] - first[0], last[1] - first[1]) == (0, 0)


async def test_ctrl_c_at_the_runner_is_not_for_its_sandboxes(tmp_path: Path) -> None:
    zygote = await start_zygote()
    box = await zygote.spawn(make_blueprint(tmp_path / "box"))
    apart = os.getsid(box.pid) != os.getsid(0)
    await zygote.close()
    assert apart


def _find_places_of_groups() -> list[Path]:
    """One of version 1 and one of version 2, if the machine has them."""
    places = (Path("/sys/fs/cgroup", name) for name in ("pids", "unified", "."))
    return [place for place in places if (place / "cgroup.procs").is_file()]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs control groups that this user may write to")
@pytest.mark.parametrize("place", _find_places_of_groups(), ids=str)
def test_pid_1_and_all_it_starts_are_in_the_control_group(tmp_path: Path, place: Path) -> None:
    group = place / f"proctor-test-{os.getpid()}"
    group.mkdir()

    async def run() -> tuple[set[int], int]:
        zygote = await start_zygote()
        box = await zygote.spawn(make_blueprint(tmp_path / "box", cgroups=(str(group),)))
        await shell(box, "setsid sleep 1000 >/dev/null 2>&1 &")
        members = {int(line) for line in (group / "cgroup.procs").read_text().split()}
        await zygote.close()
        return members, box.pid

    try:
        members, pid = asyncio.run(run())
    finally:
        group.rmdir()
    assert pid in members
    # Besides PID 1 and the command, the one who starts commands; not the zygote.
    assert len(members) == 3
