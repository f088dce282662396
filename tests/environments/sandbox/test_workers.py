"""Who does operations in a sandbox, and what somebody inside can do about it."""

import asyncio
import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from proctor.digest import sha256_pieces
from proctor.environments.sandbox import box as box_module
from proctor.environments.sandbox.blueprint import Command
from proctor.environments.sandbox.channel import Message
from proctor.environments.sandbox.link import Router
from proctor.errors import SandboxError, SlowTransferError
from proctor.trial.environment import SeenFile
from tests.environments.sandbox.boxes import made, said, shell

# Of 200 MiB of zeros.
ZEROS = sha256_pieces(bytes(1 << 20) for _ in range(200))
OTHERS = "for p in $(cd /proc; echo [0-9]*); do [ $p = 1 ] || [ $p = $$ ] || "
WORKERS = "for p in $(grep -l '^proctor-worker' /proc/[0-9]*/comm); do p=${p%/comm}; "


@pytest.mark.parametrize("room", [0, 1])
@pytest.mark.parametrize("signal", ["KILL", "STOP"])
async def test_one_that_was_killed_or_stopped_is_replaced(
    tmp_path: Path, signal: str, room: int
) -> None:
    size = str(Path(__file__).stat().st_size)
    async with made(tmp_path) as box:
        await box.open_room(["/tests"])
        await box.kind_of("/tmp", room=room)
        await shell(box, f"{OTHERS} kill -{signal} $p; done 2>/dev/null")
        try:
            async with asyncio.timeout(20):
                kind = await box.kind_of("/tmp", room=room)
        except SandboxError:
            # It was on its way to the one that was being killed.
            kind = await box.kind_of("/tmp", room=room)
        await box.put(Path(__file__), "/tmp/file", room=room)
        assert (
            kind,
            await said(box, "wc -c < /tmp/file", room=room),
            await said(box, "echo well"),
        ) == ("directory", size, "well")


async def test_a_command_lives_on_without_the_one_that_started_it(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        done = await shell(
            box, f"{WORKERS} kill -9 ${{p#/proc/}}; done; sleep 0.2; echo on; exit 3"
        )
        assert (done.output, done.return_code) == (b"on\n", 3)


async def test_a_command_that_ends_all_others_at_once_still_tells_its_code(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        ends = [await shell(box, "kill -9 -1; echo on; exit 3") for _ in range(20)]
        assert {(done.output, done.return_code) for done in ends} == {(b"on\n", 3)}


LOOKS = (
    *("ls $p/root/", "ls $p/cwd/", "readlink $p/fd/*", "cat $p/environ", "cat $p/maps"),
    *("head -c1 $p/mem", "readlink $p/exe", "readlink $p/ns/mnt"),
    "for f in $p/fd/*; do cat $f && break; done",
    "/usr/bin/python3 -c 'import ctypes, sys; libc = ctypes.CDLL(None); "
    "sys.exit(libc.ptrace(16, int(sys.argv[1]), 0, 0) != 0)' ${p#/proc/}",
)


async def test_nobody_inside_can_look_into_one(tmp_path: Path) -> None:
    looks = " ".join(f"{{ {look}; }} >/dev/null 2>&1 && echo seen;" for look in LOOKS)
    async with made(tmp_path) as box:
        await box.open_room(["/tests"])
        await box.kind_of("/", room=1)
        assert (await said(box, f"{WORKERS} echo one; {looks} done")).split() == ["one", "one"]


async def test_none_is_listed_among_the_processes(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await box.open_room(["/tests"])
        await box.kind_of("/", room=1)
        await shell(
            box, "sleep 1000 >/dev/null 2>&1 & until grep -q 1000 /proc/$!/cmdline; do :; done"
        )
        (command,) = [each.command for each in await box.list_processes()]
    assert "sleep 1000" in command


async def test_an_errand_fails_with_the_one_who_was_on_it(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "head -c 1G /dev/zero > /tmp/large")
        taking = asyncio.ensure_future(box.take("/tmp/large", tmp_path / "large"))
        while not (tmp_path / "large").exists():
            await asyncio.sleep(0.001)
        await shell(box, f"{WORKERS} kill -9 ${{p#/proc/}}; done")
        with pytest.raises(SandboxError) as failed:
            await taking
        assert (str(failed.value), await box.kind_of("/tmp/large")) == (
            "the process for it ended",
            "file",
        )


async def test_after_a_cancelled_errand_another_one_is_done(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "head -c 300M /dev/zero | tr '\\0' x > /tmp/large")
        taking = asyncio.ensure_future(box.take("/tmp/large", tmp_path / "large"))
        await asyncio.sleep(0.02)
        taking.cancel()
        await asyncio.wait([taking])
        assert (await box.kind_of("/tmp/large")) == "file"


async def test_an_errand_does_not_wait_for_a_long_one(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "head -c 300M /dev/zero | tr '\\0' x > /tmp/large")
        taking = asyncio.ensure_future(box.take("/tmp/large", tmp_path / "large"))
        await asyncio.sleep(0)
        kind, printed = await box.kind_of("/tmp"), await said(box, "echo soon")
        was_sooner = not taking.done()
        await taking
        assert (was_sooner, kind, printed) == (True, "directory", "soon")


async def test_files_are_listed_with_their_digests(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        script = (
            "mkdir -p /a/b /a/empty; echo 1 > /a/b/one; ln -s /etc/passwd /a/link; mkfifo /a/pipe;"
            "head -c 5000 /dev/zero > /a/zeros; head -c 400000 /dev/zero > /large"
        )
        await shell(box, script)
        found = await box.list_files(["/nowhere", "/a", "/large"], 100, limit=401_000)
        found = list(found)
        n_first = len(await box.list_files(["/a"], 2))
    assert found == [
        SeenFile("/a/b/one", 2, hashlib.sha256(b"1\n").hexdigest()),
        SeenFile("/a/link", None, None),
        SeenFile("/a/pipe", None, None),
        SeenFile("/a/zeros", 5000, hashlib.sha256(bytes(5000)).hexdigest()),
        SeenFile("/large", 400_000, None),
    ]
    assert n_first == 2


@pytest.mark.parametrize("n_bytes", [3, 4000, 5000, 40_000, 300_000])
async def test_files_are_copied_and_listed_whatever_their_size(
    tmp_path: Path, n_bytes: int
) -> None:
    data = (bytes(range(256)) * (n_bytes // 256 + 1))[:n_bytes]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / os.fsdecode(b"\xe9\xc3\xa9")).write_bytes(data)
    async with made(tmp_path) as box:
        await box.put(tmp_path / "in", "/in")
        (seen,) = list(await box.list_files(["/in"], 10))
    assert os.fsencode(seen.path) == b"/in/\xe9\xc3\xa9"
    assert (seen.size, seen.sha256) == (n_bytes, hashlib.sha256(data).hexdigest())


async def test_a_large_file_is_listed_too(tmp_path: Path) -> None:
    digest = hashlib.sha256(bytes(3_000_000)).hexdigest()
    async with made(tmp_path) as box:
        await shell(box, "head -c 3000000 /dev/zero > /large")
        assert list(await box.list_files(["/large"], 1)) == [SeenFile("/large", 3_000_000, digest)]


async def test_a_long_listing_is_one_exchange_and_the_runner_hashes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    pose = Router.pose

    async def note(
        router: Router, request: Mapping[str, object], *files: int
    ) -> tuple[int, asyncio.Future[Message]]:
        asked.append(request["op"])
        return await pose(router, request, *files)

    async with made(tmp_path) as box:
        await shell(box, "truncate -s 200M /hole; mkdir /many; cd /many; seq 10000 | xargs touch")
        with monkeypatch.context() as patch:
            patch.setattr(hashlib, "sha256", None)
            patch.setattr(Router, "pose", note)
            seen = await box.list_files(["/hole", "/many"], 1000)
    assert seen[0] == SeenFile("/hole", 200 << 20, ZEROS)
    assert [file.path for file in seen[1:3]] == ["/many/1", "/many/10"]
    assert (len(seen), asked) == (1000, ["list_files"])


async def test_a_listing_that_does_not_come_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box_module, "PATIENCE_SEC", 0.02)
    async with made(tmp_path) as box:
        await shell(box, "truncate -s 200M /hole")
        with pytest.raises(SlowTransferError, match="took too long"):
            await box.list_files(["/hole"], 1)
        assert (await box.kind_of("/hole")) == "file"


@pytest.mark.parametrize("user", ["root", "nobody"])
async def test_a_script_is_made_executable_and_what_is_not_there_is_no_error(
    tmp_path: Path, user: str
) -> None:
    async with made(tmp_path) as box:
        await shell(box, "echo 'echo ran' > /tmp/script; chmod 640 /tmp/script")
        look = ("/bin/bash", "-c", "stat -c %a /tmp/script")
        commands = [Command(look, "/", script=script) for script in ("/tmp/no", "/tmp/script")]
        ends = [await box.run(replace(command, user=user)) for command in commands]
        assert [(done.output, done.return_code) for done in ends] == [(b"640\n", 0), (b"751\n", 0)]
