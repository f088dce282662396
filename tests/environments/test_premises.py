"""Scratch that serves one sandbox after the other, and sandboxes that are made ahead."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from proctor.environments.sandbox.box import shared_zygote
from proctor.environments.sandbox.emptying import empty, is_pristine, make_like, stamp_of
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.runs import this_run
from proctor.environments.sandbox.scratch import scratch_roots
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from tests.environments.orders import order_of
from tests.environments.sandboxes import find_groups, running, said

pytestmark = pytest.mark.usefixtures("cache")


def scratch_directories() -> set[str]:
    """Everything that this process has in its scratch, but for the lock."""
    run = scratch_roots()[0] / str(this_run())
    return {path.name for path in run.iterdir()} - {"lock"}


async def until_emptied(sandbox: SandboxEnvironment, n_idle: int) -> None:
    """Wait until scratch that was given back waits for another sandbox."""
    slots = sandbox._held.slots
    assert slots is not None
    while len(slots._idle) < n_idle:
        await asyncio.sleep(0.005)


# Scratch


def test_nothing_of_a_sandbox_is_in_the_next_one_that_has_its_scratch(tmp_path: Path) -> None:
    change = (
        "mkdir -p /left/deep; echo x > /left/deep/file; echo x > /etc/passwd; rm -r /opt; "
        "echo x > /logs/agent/x; chmod 700 /; chmod 711 /logs /tests; touch /tests/x"
    )
    look = "ls -d /left /opt /logs/agent/x /tests/x; stat -c '%a %U' / /logs /tests; id -un"

    async def go() -> tuple[str, str, bool]:
        async with running(order_of(tmp_path)) as first:
            before = await said(first, look)
            await first.exec(change)
            where = first._held.slot
        await until_emptied(first, 1)
        async with running(order_of(tmp_path, session="trial-2")) as second:
            return before, await said(second, look), second._held.slot is where

    before, after, is_same = asyncio.run(go())
    assert before == after
    assert is_same
    assert scratch_directories() == set()


def test_scratch_with_changes_to_the_system_directories_is_not_used_again(tmp_path: Path) -> None:
    async def go() -> tuple[str, bool]:
        async with running(order_of(tmp_path)) as first:
            await first.exec("echo x > /usr/local/left || echo x > /etc/left")
            await first.exec("mkdir -p /many; cd /many; for i in $(seq 600); do : > $i; done")
            where = first._held.slot
        async with running(order_of(tmp_path, session="trial-2")) as second:
            found = await said(second, "ls -d /usr/local/left /etc/left /many 2>/dev/null")
            return found, second._held.slot is where

    assert asyncio.run(go()) == ("", False)
    assert scratch_directories() == set()


def test_a_rooms_directories_are_empty_in_the_next_sandbox(tmp_path: Path) -> None:
    async def verify(session: str) -> tuple[str, SandboxEnvironment]:
        async with running(order_of(tmp_path, session=session)) as sandbox:
            room = await sandbox.open_room(["/tests", "/logs/verifier"])
            found = await said(room, "ls -A /tests /logs/verifier; stat -c %a /tests")
            await room.exec("echo 1 > /logs/verifier/reward.txt; mkdir /tests/x; chmod 700 /tests")
        return found, sandbox

    async def go() -> tuple[str, str]:
        first, sandbox = await verify("trial-1")
        await until_emptied(sandbox, 1)
        return first, (await verify("trial-2"))[0]

    first, second = asyncio.run(go())
    assert first == second
    assert first.endswith("777")


def test_a_directory_becomes_as_it_was(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    stamp = stamp_of(str(place))
    assert is_pristine(str(place), stamp)
    (place / "a" / "b").mkdir(parents=True)
    (place / "a" / "link").symlink_to("/")
    place.chmod(0o700 if stamp.mode != 0o700 else 0o755)
    os.setxattr(place, "user.left", b"x")
    assert empty(str(place))
    assert not is_pristine(str(place), stamp)
    assert make_like(str(place), stamp)
    assert stat.S_IMODE(place.stat().st_mode) == stamp.mode
    assert os.listxattr(place) == []


def test_what_is_much_is_not_waited_for(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / str(number)).touch()
    assert not empty(str(tmp_path))


# Made ahead


def test_the_third_in_a_row_finds_a_sandbox_that_is_ready(tmp_path: Path) -> None:
    async def go() -> tuple[list[int], str]:
        zygote = await shared_zygote()
        counts = []
        for number in range(2):
            async with running(order_of(tmp_path, session=f"trial-{number}")):
                counts.append(zygote.n_boxes)
        while zygote.n_boxes < 1:
            await asyncio.sleep(0.005)
        ready = set(zygote._boxes)
        async with running(order_of(tmp_path, session="trial-3")) as third:
            assert third._held.box is not None
            counts.append(third._held.box.pid in ready)
            return counts, await said(third, "echo well > /mine; cat /mine")

    assert asyncio.run(go()) == ([1, 1, True], "well")
    assert find_groups() == []
    assert scratch_directories() == set()


def test_one_that_is_ready_is_not_for_a_trial_that_wants_another(tmp_path: Path) -> None:
    async def go() -> str:
        for number in range(2):
            async with running(order_of(tmp_path, session=f"trial-{number}")):
                pass
        task = TaskEnvironment(memory_mb=256)
        async with running(order_of(tmp_path, task=task, session="trial-3")) as third:
            return await said(third, "echo well")

    assert asyncio.run(go()) == "well"
    assert find_groups() == []
    assert scratch_directories() == set()


def test_one_that_died_while_it_waited_is_not_given_to_a_trial(tmp_path: Path) -> None:
    async def go() -> str:
        zygote = await shared_zygote()
        for number in range(2):
            async with running(order_of(tmp_path, session=f"trial-{number}")):
                pass
        while zygote.n_boxes < 1:
            await asyncio.sleep(0.005)
        for box in list(zygote._boxes.values()):
            await box.wait_until_up()
            await box.kill()
        async with running(order_of(tmp_path, session="trial-3")) as third:
            return await said(third, "echo well")

    assert asyncio.run(go()) == "well"
    assert find_groups() == []
    assert scratch_directories() == set()
