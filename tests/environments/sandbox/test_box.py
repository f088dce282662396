"""Commands in a sandbox: what comes back, what is left, what ends."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.box import Box, shared_zygote
from proctor.environments.sandbox.output import KEPT
from proctor.errors import SandboxDiedError, SandboxError
from proctor.trial.environment import Process
from tests.environments.sandbox.boxes import (
    look,
    made,
    make_blueprint,
    opened,
    said,
    shell,
    use,
)


async def until(box: Box, script: str) -> None:
    """Wait until a script succeeds inside."""
    while (await shell(box, script)).return_code:
        await asyncio.sleep(0.02)


async def until_listed(box: Box, *commands: str) -> None:
    """Wait until what runs inside are commands that begin so."""
    while True:
        all_of_them = (each.command for each in await box.list_processes())
        listed = sorted(command.removeprefix("/bin/") for command in all_of_them)
        pairs = zip(listed, commands, strict=False)
        if len(listed) == len(commands) and all(one.startswith(word) for one, word in pairs):
            return
        await asyncio.sleep(0.02)


def test_output_and_error_output_come_in_their_order(tmp_path: Path) -> None:
    assert look(tmp_path, "echo a; echo b >&2; echo c") == "a\nb\nc"


async def test_the_return_code_is_the_commands_own(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        scripts = ("exit 7", "kill -9 $$", "true")
        assert [(await shell(box, script)).return_code for script in scripts] == [7, 137, 0]


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (Command(("/no/such",), "/"), 127, "cannot execute /no/such: No such file or directory"),
        (Command(("no-such",), "/"), 127, "cannot execute no-such: No such file or directory"),
        (Command(("/etc",), "/"), 126, "cannot execute /etc: Permission denied"),
        (Command(("true",), "/absent"), 126, "cannot enter /absent: No such file or directory"),
    ],
)
def test_what_cannot_be_executed_says_so_as_a_shell_does(
    tmp_path: Path, command: Command, code: int, words: str
) -> None:
    finished = use(tmp_path, lambda box: box.run(command))
    assert (finished.return_code, finished.output) == (code, f"proctor: {words}\n".encode())


def test_long_and_strange_words_arrive_as_they_are(tmp_path: Path) -> None:
    words = ("printf", "%s", "ü\udcff \n'\"$" + "x" * 100_000)
    finished = use(tmp_path, lambda box: box.run(Command(words, "/")))
    assert finished.output == os.fsencode(words[2])


def test_the_environment_is_the_one_that_was_given(tmp_path: Path) -> None:
    command = Command(("/usr/bin/env",), "/tmp", {"LANG": "C.UTF-8", "EMPTY": ""})
    finished = use(tmp_path, lambda box: box.run(command))
    assert sorted(finished.output.decode().splitlines()) == [
        "EMPTY=",
        "HOME=/root",
        "LANG=C.UTF-8",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ]


def test_a_very_long_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    size = KEPT + (5 << 20)
    script = f"echo begin; head -c {size} /dev/zero | tr '\\0' x; echo end"
    finished = use(tmp_path, lambda box: shell(box, script))
    assert finished.n_cut == size + len("begin\nend\n") - KEPT
    assert finished.output.startswith(b"begin\nxxx")
    assert finished.output.endswith(b"xxxend\n")
    assert f"[{finished.n_cut} bytes cut here]".encode() in finished.output
    assert len(finished.output) < KEPT + 100


async def test_a_command_is_over_when_it_ends_not_when_its_service_does(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        script = "(echo $BASHPID > /tmp/pid; while echo tick; do sleep 0.01; done) & echo started"
        first = await shell(box, script)
        await until(box, "test -s /tmp/pid")
        # More than a pipe holds: it would block, or die, if nobody read it.
        await shell(
            box, "for n in $(seq 50); do kill -0 $(cat /tmp/pid) || exit 1; sleep 0.01; done"
        )
        output = first.output
        later = await said(box, "kill -0 $(cat /tmp/pid) && echo alive")
    assert b"started\n" in output
    assert later == "alive"


async def test_a_command_that_takes_too_long_is_dead(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        with pytest.raises(TimeoutError):
            await box.run(Command(("/bin/sleep", "1000"), "/"), timeout_sec=0.1)
        assert (await box.list_processes(), await said(box, "echo still here")) == (
            [],
            "still here",
        )


async def test_a_killed_command_takes_its_group_along_and_no_other(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        task = asyncio.ensure_future(shell(box, "setsid sleep 1000 & sleep 1001 & sleep 1002; :"))
        await until_listed(box, "bash", "sleep 1000", "sleep 1001", "sleep 1002")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [each.command for each in await box.list_processes()] == ["sleep 1000"]


async def test_a_command_that_ignores_the_asking_is_killed(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        script = "trap '' TERM; touch /tmp/up; while :; do sleep 0.1; done"
        task = asyncio.ensure_future(shell(box, script))
        await until(box, "test -e /tmp/up")
        began = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await box.list_processes() == []
        assert (time.monotonic() - began) >= 1.9


async def test_a_command_whose_corpse_somebody_keeps_is_dead_all_the_same(tmp_path: Path) -> None:
    tracer = """
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.ptrace(16, int(open("/tmp/victim").read()), 0, 0)
open("/tmp/traced", "w").close()
time.sleep(1000)
"""
    async with made(tmp_path) as box:
        task = asyncio.ensure_future(shell(box, "echo $$ > /tmp/victim; exec sleep 1000"))
        await until(box, "grep -q sleep /proc/$(cat /tmp/victim)/cmdline")
        script = f"nohup /usr/bin/python3 -c '{tracer}' >/dev/null 2>&1 &"
        await shell(box, script.replace('"', '\\"').replace("'", '"'))
        await until(box, "test -e /tmp/traced")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [each.command[:16] for each in await box.list_processes()] == ["/usr/bin/python3"]


async def test_cancelling_twice_still_waits_for_the_group_to_die(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        task = asyncio.ensure_future(shell(box, "trap '' TERM; touch /tmp/up; sleep 1000 & wait"))
        await until(box, "test -e /tmp/up")
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await box.list_processes() == []


async def test_a_command_that_is_cancelled_at_once_does_not_run_on(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        for _ in range(20):
            task = asyncio.ensure_future(shell(box, "sleep 1000"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await box.list_processes()) == []


def test_many_commands_run_at_once(tmp_path: Path) -> None:
    async def run(box: Box) -> list[str]:
        return await asyncio.gather(*(said(box, f"echo {n}; sleep 0.01") for n in range(40)))

    assert use(tmp_path, run) == [str(n) for n in range(40)]


async def test_orphans_are_reaped(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "for n in $(seq 300); do (true &); done")
        await until(box, "! grep -l 'State:.*zombie' /proc/[0-9]*/status 2>/dev/null")
        assert int(await said(box, "ls -d /proc/[0-9]* | wc -l")) <= 6


async def test_processes_are_listed_without_our_own(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "setsid sleep 12345 >/dev/null 2>&1 &")
        await until_listed(box, "sleep 12345")
        (found,) = await box.list_processes()
    assert found.pid > 1
    assert found == Process(found.pid, "sleep 12345", os.path.realpath("/usr/bin/sleep"))


def test_an_unknown_user_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="user 'ghost' is not in the sandbox's /etc/passwd"):
        look(tmp_path, "true", user="ghost")


def test_a_users_home_and_ids_are_root_by_default(tmp_path: Path) -> None:
    assert look(tmp_path, "id; echo $HOME; umask") == (
        "uid=0(root) gid=0(root) groups=0(root)\n/root\n0022"
    )


async def test_a_sandbox_that_is_killed_refuses_what_is_asked_later(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        waiting = asyncio.ensure_future(shell(box, "sleep 1000"))
        await asyncio.sleep(0.05)
        await box.kill()
        await box.kill()
        with pytest.raises(SandboxDiedError, match="PID 1 was killed"):
            await waiting
        with pytest.raises(SandboxDiedError, match="PID 1 was killed"):
            await shell(box, "true")
        assert not Path(f"/proc/{box.pid}").exists()


def test_a_sandbox_that_cannot_be_built_says_in_which_step(tmp_path: Path) -> None:
    blueprint = make_blueprint(tmp_path / "box", cgroups=("/sys/fs/cgroup/no/such/group",))

    async def run() -> None:
        async with opened(blueprint):
            pass

    with pytest.raises(SandboxError, match=r"the control group .*: No such file") as raised:
        asyncio.run(run())
    assert str(raised.value).startswith("sandbox box could not be built: ")


def test_a_file_system_that_holds_no_overlay_is_named(tmp_path: Path) -> None:
    blueprint = make_blueprint(tmp_path / "box")
    # The parts of a running sandbox are its own.
    upper = Path(blueprint.parts[0].upper)
    upper.rmdir()
    upper.write_text("")

    async def run() -> None:
        async with opened(blueprint):
            pass

    with pytest.raises(SandboxError, match="mounting an overlay on /: Not a directory, errno 20"):
        asyncio.run(run())


def test_the_shared_zygote_is_one_for_each_event_loop(tmp_path: Path) -> None:
    async def run() -> int:
        one, other = await shared_zygote(), await shared_zygote()
        assert one is other
        box = await one.spawn(make_blueprint(tmp_path / "box"))
        return box.pid

    pid = asyncio.run(run())
    assert not Path(f"/proc/{pid}").exists()


def test_sixty_sandboxes_live_side_by_side(tmp_path: Path) -> None:
    async def one(number: int) -> str:
        zygote = await shared_zygote()
        box = await zygote.spawn(make_blueprint(tmp_path / str(number)))
        printed = await said(box, f"echo {number} > /tmp/mine; cat /tmp/*")
        await box.kill()
        return printed

    async def run() -> list[str]:
        return await asyncio.gather(*(one(number) for number in range(60)))

    assert asyncio.run(run()) == [str(number) for number in range(60)]


async def test_a_spawn_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    zygote = await shared_zygote()
    for number in range(8):
        blueprint = make_blueprint(tmp_path / str(number))
        task = asyncio.ensure_future(zygote.spawn(blueprint))
        await asyncio.sleep(0.002 * number)
        task.cancel()
        done, _ = await asyncio.wait([task])
        for ended in done:
            if not ended.cancelled():
                await ended.result().kill()
    assert not zygote._boxes


async def test_directories_are_made_and_what_is_above_them_stays_as_it_is(tmp_path: Path) -> None:
    blueprint = make_blueprint(tmp_path / "box", directories=("/root/a/b", "/home"))
    (tmp_path / "box/skeleton/root").chmod(0o700)
    async with opened(blueprint) as box:
        assert (
            await said(box, "stat -c '%a %n' /root /root/a /root/a/b /home")
        ) == "700 /root\n755 /root/a\n777 /root/a/b\n777 /home"


def test_a_link_where_a_directory_is_to_be_guarded_is_refused(tmp_path: Path) -> None:
    blueprint = make_blueprint(tmp_path / "box")
    (tmp_path / "box/skeleton/logs").symlink_to("etc")

    async def run() -> None:
        async with opened(blueprint):
            pass

    with pytest.raises(SandboxError, match="making directories: not a directory, or a link"):
        asyncio.run(run())
