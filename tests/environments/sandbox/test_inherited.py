"""What PID 1 does about itself: limits that were changed from outside, and requests that fail."""

import asyncio
import os
import resource
from pathlib import Path

import pytest

from proctor.environments.sandbox.box import Box
from proctor.errors import SandboxError
from tests.environments.sandbox.boxes import made, said, use

BY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes others' hard limits")
STACK = resource.RLIMIT_STACK
SMALL = 256 << 10


def processes_of(box: Box) -> list[int]:
    """PID 1 and its workers, as the host numbers them."""
    children = Path(f"/proc/{box.pid}/task/{box.pid}/children").read_text().split()
    return [box.pid, *map(int, children)]


@BY_ROOT
async def test_a_lowered_limit_is_restored_for_the_next_command(tmp_path: Path) -> None:
    # With ids of its own, only a root with SYS_RESOURCE may change its limits from outside.
    async with made(tmp_path, first_id=0) as box:
        found = {await said(box, "ulimit -s")}
        for pid in processes_of(box):
            _, hard = resource.prlimit(pid, STACK)
            resource.prlimit(pid, STACK, (SMALL, hard))
        found.add(await said(box, "ulimit -s"))
        room = await box.open_room(("/tests",))
        found.add(await said(box, "ulimit -s", room=room))
        assert len(found) == 1


@BY_ROOT
@pytest.mark.parametrize("room", [0, 1])
def test_nothing_runs_under_a_hard_limit_that_cannot_be_restored(tmp_path: Path, room: int) -> None:
    async def run(box: Box) -> None:
        await box.open_room(("/tests",))
        await said(box, "true", room=room)
        for pid in processes_of(box):
            resource.prlimit(pid, STACK, (SMALL, SMALL))
        await said(box, "ulimit -s", room=room)

    with pytest.raises(SandboxError, match=r"RLIMIT_STACK was changed from .* to "):
        use(tmp_path, run, first_id=0)


@BY_ROOT
async def test_a_raised_oom_score_is_not_handed_down(tmp_path: Path) -> None:
    score = "cat /proc/self/oom_score_adj"
    async with made(tmp_path) as box:
        before = await said(box, score)
        await said(box, "for p in /proc/[0-9]*; do echo 900 > $p/oom_score_adj; done")
        after = await said(box, score)
    assert before == after != "900"


@pytest.mark.parametrize("op", ["run", "open_room"])
async def test_a_request_that_pid_1_cannot_do_is_answered(tmp_path: Path, op: str) -> None:
    async with made(tmp_path) as box:
        with pytest.raises(SandboxError, match="PID 1 failed: KeyError"):
            async with asyncio.timeout(20):
                await box._ask({"op": op})
        assert (await said(box, "echo well")) == "well"
