"""Scratch that serves one sandbox after the other, and sandboxes that are made ahead."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.environments.sandbox import slots
from proctor.environments.sandbox.box import shared_zygote
from proctor.environments.sandbox.environment import SandboxEnvironment
from proctor.environments.sandbox.scratch import scratch_roots, this_run
from proctor.environments.sandbox.slots import empty, is_pristine, make_like, stamp_of
from proctor.filesystems import list_mounts
from proctor.task.environment import EnvironmentConfig as TaskEnvironment
from tests.environments.orders import order_of
from tests.environments.sandboxes import find_groups, find_mounts, running, said

pytestmark = pytest.mark.usefixtures("cache")


def scratch_directories() -> set[str]:
    """What this process has in its scratch but for the lock and the base's furnishing."""
    run = scratch_roots()[0] / str(this_run())
    names = {path.name for path in run.iterdir()} - {"lock"}
    return {name for name in names if not name.startswith("furnishing.")}


def place_of(sandbox: SandboxEnvironment) -> Path:
    """The scratch that a sandbox has."""
    assert sandbox._held.slot is not None
    return sandbox._held.slot.session.directory


async def until_emptied(sandbox: SandboxEnvironment, n_idle: int) -> None:
    """Wait until scratch that was given back waits for another sandbox."""
    given_to = sandbox._held.slots
    assert given_to is not None
    while len(given_to._idle) < n_idle:
        await asyncio.sleep(0.005)


# Scratch


def test_nothing_of_a_sandbox_is_in_the_next_one_that_has_its_scratch(tmp_path: Path) -> None:
    change = (
        "mkdir -p /left/deep; echo x > /left/deep/file; echo x > /etc/passwd; rm -r /opt; "
        "echo x > /logs/agent/x; chmod 700 /; chmod 711 /logs /tests; touch /tests/x /tmp/x; "
        "echo x > /dev/shm/x; ln -s / /root/link; hostname other; umask 0; "
        "setsid sleep 1000 >/dev/null 2>&1 &"
    )
    look = (
        "ls -A / /opt /root /tmp /dev/shm /logs /logs/agent /tests 2>&1; cat /etc/passwd; "
        "stat -c '%a %U %h %s' / /logs /logs/agent /tests /tmp; id -un; hostname; umask; "
        "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep; "
        "grep -E 'Cap|NoNew|Seccomp' /proc/self/status"
    )

    async def go() -> tuple[str, str, bool]:
        async with running(order_of(tmp_path)) as first:
            before = await said(first, look)
            await first.exec(change)
            where = place_of(first)
        await until_emptied(first, 1)
        async with running(order_of(tmp_path, session="trial-2")) as second:
            return before, await said(second, look), place_of(second) == where

    before, after, is_same = asyncio.run(go())
    assert before == after
    assert is_same
    assert scratch_directories() == set()


async def test_a_file_of_the_same_name_is_another_file_in_the_next_sandbox(tmp_path: Path) -> None:
    write = "echo {0} >> /app.txt; mkdir -p /kept; echo {0} >> /kept/file; cat /app.txt /kept/file"
    async with running(order_of(tmp_path)) as first:
        before = await said(first, write.format("first"))
    await until_emptied(first, 1)
    async with running(order_of(tmp_path, session="trial-2")) as second:
        assert (before, await said(second, write.format("second"))) == (
            "first\nfirst",
            "second\nsecond",
        )


def test_scratch_that_is_not_as_new_is_not_used_again(tmp_path: Path) -> None:
    async def go() -> tuple[str, bool]:
        async with running(order_of(tmp_path)) as first:
            await first.exec("echo x > /usr/local/left || echo x > /etc/left")
            await first.exec("mkdir -p /many; cd /many; for i in $(seq 600); do : > $i; done")
            where = place_of(first)
        async with running(order_of(tmp_path, session="trial-2")) as second:
            found = await said(second, "ls -d /usr/local/left /etc/left /many 2>/dev/null")
            return found, place_of(second) == where

    assert asyncio.run(go()) == ("", False)
    assert scratch_directories() == set()


async def test_scratch_is_not_used_again_while_its_sandbox_lives(tmp_path: Path) -> None:
    async with running(order_of(tmp_path)) as first, running(order_of(tmp_path)) as second:
        both = first, second
        for number, each in enumerate(both):
            await each.exec(f"echo {number} > /tmp/mine")
        places = {place_of(each) for each in both}
        found = [await said(each, "cat /tmp/mine") for each in both]
    assert len(places) == 2
    assert found == ["0", "1"]


def test_scratch_serves_some_sandboxes_and_then_another_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "_MOST_SERVED", 2)

    async def go() -> list[Path]:
        places = []
        for number, n_idle in enumerate((1, 0, 1)):
            # Never twice the same request in a row: none is made ahead.
            task = TaskEnvironment(memory_mb=256 + number % 2)
            async with running(order_of(tmp_path, task=task, session=f"trial-{number}")) as one:
                places.append(place_of(one))
            await until_emptied(one, n_idle)
        return places

    first, second, third = asyncio.run(go())
    assert first == second != third
    assert scratch_directories() == set()


async def test_a_rooms_directories_are_empty_in_the_next_sandbox(tmp_path: Path) -> None:
    async def verify(session: str) -> tuple[str, SandboxEnvironment]:
        async with running(order_of(tmp_path, session=session)) as sandbox:
            room = await sandbox.open_room(["/tests", "/logs/verifier"])
            found = await said(room, "ls -A /tests /logs/verifier; stat -c %a /tests")
            await room.exec("echo 1 > /logs/verifier/reward.txt; mkdir /tests/x; chmod 700 /tests")
        return found, sandbox

    first, sandbox = await verify("trial-1")
    await until_emptied(sandbox, 1)
    second = (await verify("trial-2"))[0]
    assert first == second
    assert first.endswith("777")


NOTE = """
import os, sys
for path in sys.argv[1:]:
    there = os.stat(path)
    try:
        for name in ("user.overlay.note", "user.overlay.opaque"):
            os.setxattr(path, name, b"n")
    except PermissionError:
        pass
    os.utime(path, ns=(4102444800 * 10**9, there.st_mtime_ns))
"""
READ_NOTE = """
import os, sys
for path in sys.argv[1:]:
    print(path, os.listxattr(path), os.stat(path).st_atime > 4e9)
"""


async def after_a_note(tmp_path: Path, paths: str) -> tuple[str, bool]:
    """What of notes at these paths the next sandbox reads, and whether it has the same scratch."""
    async with running(order_of(tmp_path)) as first:
        await first.exec(f"python3 -c '{NOTE}' {paths}")
        noted = await said(first, f"python3 -c '{READ_NOTE}' {paths}")
        assert noted.count("True") == len(paths.split())
        where = place_of(first)
    given_to = first._held.slots
    assert given_to is not None
    while where.exists() and not given_to._idle:
        await asyncio.sleep(0.005)
    async with running(order_of(tmp_path, session="trial-2")) as second:
        found = await said(second, f"python3 -c '{READ_NOTE}' {paths}")
        return found, place_of(second) == where


def test_no_attribute_or_time_of_the_root_is_a_note_for_the_next_sandbox(tmp_path: Path) -> None:
    assert asyncio.run(after_a_note(tmp_path, "/")) == ("/ [] False", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="/usr belongs to another user")
def test_no_attribute_or_time_of_usr_is_a_note_for_the_next_sandbox(tmp_path: Path) -> None:
    found, is_same = asyncio.run(after_a_note(tmp_path, "/usr /etc"))
    assert found == "/usr [] False\n/etc [] False"
    assert not is_same


# Emptying


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


def test_a_directory_in_which_something_came_and_went_is_not_pristine(tmp_path: Path) -> None:
    stamp = stamp_of(str(tmp_path))
    # The file system's clock may tick slowly.
    while stamp_of(str(tmp_path)).changed_ns == stamp.changed_ns:
        (tmp_path / "file").touch()
        (tmp_path / "file").unlink()
    assert not is_pristine(str(tmp_path), stamp)


def test_nothing_is_emptied_through_a_link(tmp_path: Path) -> None:
    outside, place = tmp_path / "outside", tmp_path / "place"
    for directory in (outside, place):
        directory.mkdir()
    (outside / "file").touch()
    (place / "link").symlink_to(outside)
    assert empty(str(place))
    assert (outside / "file").exists()
    (tmp_path / "alias").symlink_to(outside)
    with pytest.raises(OSError, match="alias"):
        stamp_of(str(tmp_path / "alias"))


def test_what_is_much_is_not_waited_for(tmp_path: Path) -> None:
    for number in range(600):
        (tmp_path / str(number)).touch()
    assert not empty(str(tmp_path))


# Made ahead


async def use_two(tmp_path: Path) -> None:
    """Start and stop two sandboxes alike; another is made ahead then."""
    for number in range(2):
        async with running(order_of(tmp_path, session=f"trial-{number}")):
            pass
    zygote = await shared_zygote()
    while not zygote._boxes:
        await asyncio.sleep(0.005)


def test_the_third_in_a_row_finds_a_sandbox_that_is_ready(tmp_path: Path) -> None:
    async def go() -> tuple[bool, str]:
        await use_two(tmp_path)
        ready = set((await shared_zygote())._boxes)
        async with running(order_of(tmp_path, session="trial-3")) as third:
            assert third._held.box is not None
            is_ready = third._held.box.pid in ready
            return is_ready, await said(third, "echo well > /mine; cat /mine")

    assert asyncio.run(go()) == (True, "well")
    assert find_groups() == []
    assert scratch_directories() == set()


def test_one_that_was_made_ahead_and_not_used_is_gone_in_the_end(tmp_path: Path) -> None:
    async def go() -> list[int]:
        await use_two(tmp_path)
        return list((await shared_zygote())._boxes)

    before = find_mounts()
    pids = asyncio.run(go())
    assert len(pids) == 1
    assert not Path(f"/proc/{pids[0]}").exists()
    assert find_groups() == []
    assert scratch_directories() == set()
    assert find_mounts() == before


def test_one_that_is_ready_is_not_for_a_trial_that_wants_another(tmp_path: Path) -> None:
    async def go() -> tuple[str, bool]:
        await use_two(tmp_path)
        ready = set((await shared_zygote())._boxes)
        order = order_of(tmp_path, task=TaskEnvironment(memory_mb=256), session="trial-3")
        async with running(order) as third:
            assert third._held.box is not None
            return await said(third, "echo well"), third._held.box.pid in ready

    assert asyncio.run(go()) == ("well", False)
    assert find_groups() == []
    assert scratch_directories() == set()


def test_one_that_died_while_it_waited_is_not_given_to_a_trial(tmp_path: Path) -> None:
    async def go() -> str:
        await use_two(tmp_path)
        for box in list((await shared_zygote())._boxes.values()):
            await box.wait_until_up()
            await box.kill()
        async with running(order_of(tmp_path, session="trial-3")) as third:
            return await said(third, "echo well")

    assert asyncio.run(go()) == "well"
    assert find_groups() == []
    assert scratch_directories() == set()


# A runner that is killed


def test_what_a_killed_runner_had_is_cleaned_away(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environ = {**os.environ, "PROCTOR_CACHE": str(cache)}
    words = [sys.executable, "-m", "tests.environments.left_behind", str(tmp_path)]
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
        (run,) = (path for path in (cache / "scratch").iterdir() if path.is_dir())
        names = sorted(path.name.partition(".")[0] for path in run.iterdir())
        runner.send_signal(signal.SIGKILL)
    assert names == ["furnishing", "lock", "one", "ready", "two"]
    cleaning = [sys.executable, "-m", "proctor", "clean"]
    subprocess.run(cleaning, env=environ, check=True, capture_output=True)
    assert list((cache / "scratch").iterdir()) == []
    assert (tmp_path / "job/one/agent/left.txt").read_text() == "evidence\n"
    tops = {mount.target for mount in list_mounts() if mount.kind.startswith("cgroup")}
    assert [found for top in tops for found in Path(top).rglob(f"proctor-{run.name}-*/")] == []
