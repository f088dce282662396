"""Files in and out of a sandbox: what arrives, and what a stranger's files cannot do outside."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from proctor.environments.sandbox.archive import BrokenArchiveError, Limits
from proctor.errors import SandboxError
from tests.environments.sandbox.archives import entry, unpacked
from tests.environments.sandbox.boxes import made, said, shell


async def test_a_directory_arrives_with_its_modes_times_and_links(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub/empty").mkdir(parents=True)
    (source / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (source / "run.sh").chmod(0o755)
    os.utime(source / "run.sh", (10**9, 10**9))
    (source / "sub/link").symlink_to("../run.sh")
    (source / "sub/naïve name").write_bytes(b"\0" * 300_000)
    async with made(tmp_path) as box:
        await box.put(source, "/deep/down/here")
        script = (
            "cd /deep/down/here; stat -c '%n %a %u %g %Y' run.sh; readlink sub/link; ./run.sh; "
            "stat -c %s 'sub/naïve name'; find . -type d | sort"
        )
        assert (await said(box, script)).split("\n") == [
            "run.sh 755 0 0 1000000000",
            "../run.sh",
            "hi",
            "300000",
            ".",
            "./sub",
            "./sub/empty",
        ]


async def test_a_file_is_put_at_a_path_or_into_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    async with made(tmp_path) as box:
        await box.put(tmp_path / "a.txt", "/new/place/b.txt")
        await box.put(tmp_path / "a.txt", "/tmp")
        await box.put(tmp_path / "a.txt", "/other/")
        assert (await said(box, "ls /new/place/b.txt /tmp/a.txt /other/a.txt | wc -l")) == "3"


async def test_what_is_put_replaces_a_planted_link_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "test.sh").write_text("true tests")
    async with made(tmp_path) as box:
        await shell(box, "ln -s /etc/passwd /workspace/test.sh; mkfifo /workspace/pipe")
        await box.put(tmp_path / "test.sh", "/workspace/test.sh")
        await box.put(tmp_path / "test.sh", "/workspace/pipe")
        assert (
            await said(box, "cat /workspace/test.sh /workspace/pipe; grep -c root /etc/passwd")
        ) == "true teststrue tests1"


async def test_a_directory_comes_out_with_what_was_refused_listed(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(
            box,
            "cd /workspace; mkdir -p d/e; echo one > d/one; ln -s d/one inner; "
            "ln -s ../one d/e/up; ln -s /etc/shadow out; ln -s ../../x d/far; mkfifo pipe; "
            "chmod 4755 d/one; chmod 0 d/e; "
            "echo secret > hidden; chmod 0 hidden; ln -s loop loop",
        )
        assert sorted(await box.take("/workspace", tmp_path / "taken")) == [
            "d/far: a link to ../../x, which leads out",
            "out: a link to /etc/shadow, which leads out",
            "pipe: neither a file, a directory nor a link",
        ]
    taken = tmp_path / "taken"
    assert (taken / "inner").read_text() == (taken / "d/e/up").read_text() == "one\n"
    assert (taken / "hidden").read_text() == "secret\n"
    assert stat.S_IMODE((taken / "d/one").stat().st_mode) == 0o755
    assert (taken / "loop").is_symlink()


async def test_a_file_comes_out_to_a_path_or_into_a_directory(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "echo 1 > /tmp/reward.txt; ln -s reward.txt /tmp/link")
        await box.take("/tmp/reward.txt", tmp_path / "new/place.txt")
        await box.take("/tmp/reward.txt", tmp_path / "new")
        await box.take("/tmp/link", tmp_path / "linked")
    for name in ("new/place.txt", "new/reward.txt", "linked"):
        assert (tmp_path / name).read_text() == "1\n"
        assert not (tmp_path / name).is_symlink()


async def test_what_is_not_there_is_a_file_not_found(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        with pytest.raises(FileNotFoundError, match="/no/such"):
            await box.take("/no/such", tmp_path / "taken")
        with pytest.raises(FileNotFoundError, match="nothing-here"):
            await box.put(tmp_path / "nothing-here", "/tmp/x")
        assert await box.kind_of("/tmp/x") is None
    assert not (tmp_path / "taken").exists()


async def test_a_target_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    async with made(tmp_path) as box:
        with pytest.raises(SandboxError, match="/proc/sys/x: Read-only file system"):
            await box.put(tmp_path / "a", "/proc/sys/x")
        (tmp_path / "file").write_text("")
        with pytest.raises(OSError, match=r"Not a directory|File exists"):
            await box.take("/etc", tmp_path / "file/below")


async def test_more_than_the_limit_stays_inside_and_is_listed(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "cd /workspace; truncate -s 1T huge; echo small > small; seq 9 > a")
        first = await box.take("/workspace", tmp_path / "taken", limit=1000)
        by_size = first
        by_number = await box.take("/workspace", tmp_path / "few", limit=1000, most_entries=2)
    assert by_size == ("huge: 1099511627776 bytes, with which it would be over 1000",)
    assert sorted(path.name for path in (tmp_path / "taken").iterdir()) == ["a", "small"]
    assert by_number == ("huge: more than 2 entries; it and what comes after is left",)


async def test_kinds_of_paths(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "ln -s /etc /tmp/etc; ln -s /none /tmp/none")
        paths = (
            "/etc/passwd",
            "/etc",
            "/tmp/etc",
            "/dev/null",
            "/none",
            "/tmp/none",
            "/etc/passwd/x",
        )
        assert [await box.kind_of(path) for path in paths] == [
            "file",
            "directory",
            "directory",
            "other",
            None,
            None,
            None,
        ]


async def test_directories_are_made_for_everybody(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await box.make_directories(["/logs/agent", "/a/b/c"])
        assert (await said(box, "stat -c %a /logs/agent /a/b/c")) == "777\n777"


async def test_a_transfer_that_is_cancelled_ends_on_both_sides(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "head -c 600M /dev/zero > /workspace/huge")
        task = asyncio.ensure_future(box.take("/workspace/huge", tmp_path / "huge"))
        while not (tmp_path / "huge").exists():
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await box.list_processes()) == []


async def test_a_sandbox_that_dies_in_a_transfer_is_an_error(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, "head -c 600M /dev/zero > /workspace/huge")
        task = asyncio.ensure_future(box.take("/workspace/huge", tmp_path / "huge"))
        while not (tmp_path / "huge").exists():
            await asyncio.sleep(0.005)
        await box.kill()
        with pytest.raises(SandboxError, match="PID 1 was killed"):
            await task


async def test_many_transfers_at_once(tmp_path: Path) -> None:
    async with made(tmp_path) as box:

        async def there_and_back(number: int) -> None:
            source = tmp_path / f"{number}.txt"
            source.write_text(str(number) * 1000)
            await box.put(source, f"/tmp/{number}.txt")
            await box.take(f"/tmp/{number}.txt", tmp_path / f"back/{number}")

        await asyncio.gather(*(there_and_back(number) for number in range(30)))
    assert len(list((tmp_path / "back").iterdir())) == 30


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", ".", "a//b", "a/.", ""])
def test_a_name_that_leads_out_breaks_the_parcel(tmp_path: Path, name: str) -> None:
    with pytest.raises(BrokenArchiveError, match="expected a path below its top"):
        unpacked(tmp_path / "in", entry(b"F", name, b"x"))
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "to", ["/etc/passwd", "..", "../x", "a/../../x", "p/q/../..", "up/../x", "", "a/.."]
)
def test_a_link_that_could_lead_out_is_refused(tmp_path: Path, to: str) -> None:
    refused = unpacked(tmp_path / "in", entry(b"L", "link", to.encode()))
    assert refused == (f"link: a link to {to}, which leads out",)
    assert list((tmp_path / "in").iterdir()) == []


@pytest.mark.parametrize("to", ["x", "a/b", "../top", "../a", "."])
def test_a_link_that_stays_inside_is_kept(tmp_path: Path, to: str) -> None:
    assert unpacked(tmp_path / "in", entry(b"L", "d/link", to.encode())) == ()
    assert (tmp_path / "in/d/link").readlink() == Path(to)


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in/d").symlink_to(tmp_path / "out")
    (tmp_path / "in/f").symlink_to(tmp_path / "out/f")
    archive = (entry(b"L", "e", b"d"), entry(b"F", "d/x", b"x"), entry(b"F", "f", b"f"))
    assert unpacked(tmp_path / "in", *archive, entry(b"F", "e/y", b"y")) == ()
    assert list((tmp_path / "out").iterdir()) == []
    assert (tmp_path / "in/d/x").read_text() == "x"
    assert (tmp_path / "in/e/y").read_text() == "y"


@pytest.mark.parametrize(
    ("archive", "limits"),
    [
        (entry(b"F", "f", b"12345"), Limits(n_bytes=4)),
        (entry(b"D", "a") + entry(b"D", "b") + entry(b"D", "c"), Limits(n_entries=1)),
        (entry(b"X", "strange"), Limits()),
        (b"garbage", Limits()),
        (entry(b"L", "l", b"x" * 5000), Limits()),
    ],
)
def test_a_parcel_that_no_sender_of_ours_wrote_is_broken(
    tmp_path: Path, archive: bytes, limits: Limits
) -> None:
    with pytest.raises(BrokenArchiveError):
        unpacked(tmp_path / "in", archive, limits=limits)
