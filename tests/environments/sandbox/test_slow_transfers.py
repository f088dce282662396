"""Files that could take long to fetch: those with holes, and those of a sender that stalls."""

import asyncio
import io
import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from proctor.environments.sandbox import transfer
from proctor.environments.sandbox.archive import (
    BrokenArchiveError,
    Limits,
    Sender,
    pack_head,
)
from proctor.environments.sandbox.channel import Message
from proctor.environments.sandbox.unpack import unpack
from proctor.errors import SlowTransferError
from proctor.trial.finding import Finding, FindingCode
from tests.environments.orders import order_of
from tests.environments.sandbox.archives import entry, unpacked
from tests.environments.sandbox.boxes import made, shell
from tests.environments.sandboxes import found_in, running

GIB = 1 << 30
MUCH = "head -c 600M /dev/zero"


async def test_holes_come_out_as_holes(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(
            box,
            "cd /workspace; truncate -s 5G empty; fallocate -l 100M reserved; "
            "truncate -s 1G middle; printf mid | dd of=middle bs=1 seek=500M conv=notrunc; "
            "truncate -s 1G end; printf end >> end; printf begin > begin; truncate -s 900M begin",
        )
        begun = time.monotonic()
        assert await box.take("/workspace", tmp_path / "taken", limit=8 * GIB) == ()
        assert (time.monotonic() - begun) < 5
    taken = tmp_path / "taken"
    sizes = {path.name: path.stat().st_size for path in taken.iterdir()}
    assert sizes == {
        "empty": 5 * GIB,
        "reserved": 100 << 20,
        "middle": GIB,
        "end": GIB + 3,
        "begin": 900 << 20,
    }
    assert sum(path.stat().st_blocks * 512 for path in taken.iterdir()) < 4 << 20
    for name, at, text in (("middle", 500 << 20, b"mid"), ("end", GIB, b"end"), ("begin", 0, b"b")):
        with (taken / name).open("rb") as file:
            file.seek(at)
            assert file.read(len(text)) == text


@pytest.mark.parametrize("step", [4096, 8192, 1 << 16, 70_000, 1 << 20])
def test_a_file_of_many_holes_is_the_same_on_the_other_side(tmp_path: Path, step: int) -> None:
    source = tmp_path / "source"
    with source.open("wb") as file:
        for number in range(20):
            file.seek(number * 2 * step + (step if step > 4096 else 0))
            file.write(os.urandom(step // 2))
        file.truncate(41 * step + 17)
    stream = io.BytesIO()
    Sender(stream, Limits()).send(str(source))
    stream.seek(0)
    unpack(stream, tmp_path / "target", "name", Limits())
    assert (tmp_path / "target").read_bytes() == source.read_bytes()


def runs(size: int, *pairs: tuple[int, int]) -> bytes:
    """A file with holes as a stranger may send it; all its data are there."""
    head = pack_head(b"H", "f", (0o644, 0, size))
    return head + b"".join(struct.pack("=QQ", hole, n) + b"x" * n for hole, n in pairs)


@pytest.mark.parametrize(
    "archive",
    [
        runs(100, (101, 0)),
        runs(100, (2**64 - 1, 101)),
        runs(100, (0, 0), (100, 0)),
        runs(100, (10, 90)),
        runs(1 << 20, (0, 1), (1, 1), ((1 << 20) - 3, 0)),
        runs(1 << 20, (0, 1), (0, 1), ((1 << 20) - 2, 0)),
        runs(1 << 20, (1 << 17, 0), (1 << 17, 5)),
        runs(1 << 20, (1 << 17, 5)),
    ],
)
def test_runs_that_no_sender_of_ours_wrote_are_broken(tmp_path: Path, archive: bytes) -> None:
    with pytest.raises(BrokenArchiveError):
        unpacked(tmp_path / "in", archive)
    assert list((tmp_path / "in").iterdir()) == []


def test_a_file_with_holes_counts_with_its_whole_size(tmp_path: Path) -> None:
    with pytest.raises(BrokenArchiveError, match="more than 1000 bytes"):
        unpacked(tmp_path / "in", runs(1 << 20, (1 << 20, 0)), limits=Limits(n_bytes=1000))


class Stalled:
    """Somebody who sends a file and half of another, and no answer."""

    async def pose(
        self, _request: Mapping[str, object], *files: int
    ) -> tuple[int, asyncio.Future[Message]]:
        (file,) = files
        self._file = file
        os.write(file, entry(b"D", "") + entry(b"F", "a", b"all") + entry(b"F", "b", b"half")[:-2])
        return 1, asyncio.get_running_loop().create_future()

    async def hear_out(self, _number: int, answer: asyncio.Future[Message]) -> Message:
        try:
            return await answer
        finally:
            os.close(self._file)


def test_of_what_takes_too_long_whole_files_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE_SEC", 0.1)

    def work(stream: BinaryIO) -> tuple[str, ...]:
        return unpack(stream, tmp_path / "in", "name", Limits())

    with pytest.raises(SlowTransferError):
        asyncio.run(transfer.take_files(Stalled(), {}, work))
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["a"]


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever takes longer than a moment takes too long, however much has come."""
    monkeypatch.setattr(transfer, "PATIENCE_SEC", 0.05)
    monkeypatch.setattr(transfer, "BYTES_PER_SEC", 1e15)


@pytest.mark.usefixtures("no_patience")
async def test_a_transfer_that_is_given_up_ends_on_both_sides(tmp_path: Path) -> None:
    async with made(tmp_path) as box:
        await shell(box, f"cd /workspace; echo a > a; {MUCH} > b; echo c > /tmp/c")
        with pytest.raises(SlowTransferError, match=r"took too long: given up after 0 s; the rest"):
            await box.take("/workspace", tmp_path / "taken")
        # Somebody else does the next operation.
        await box.take("/tmp/c", tmp_path / "c")
        assert (await box.list_processes()) == []
    assert (tmp_path / "c").read_text() == "c\n"
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["a"]


async def test_what_keeps_coming_gets_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE_SEC", 0.05)
    monkeypatch.setattr(transfer, "BYTES_PER_SEC", 1e6)
    async with made(tmp_path) as box:
        await shell(box, f"{MUCH} > /workspace/b")
        await box.take("/workspace", tmp_path / "taken")
    assert (tmp_path / "taken/b").stat().st_size == 600 << 20


async def fetch_much(tmp_path: Path, place: str) -> list[Finding]:
    """Fetch a directory that takes too long; what was found."""
    async with running(order_of(tmp_path)) as sandbox:
        await sandbox.exec(f"mkdir -p {place}; {MUCH} > {place}/b")
        await sandbox.download_dir(place, tmp_path / "fetched")
        return list(found_in(sandbox))


@pytest.mark.usefixtures("cache", "no_patience")
def test_files_that_come_too_slowly_are_a_finding_but_an_error_of_the_verifiers(
    tmp_path: Path,
) -> None:
    (finding,) = asyncio.run(fetch_much(tmp_path / "1", "/logs/agent"))
    assert finding.code is FindingCode.FILES_REFUSED
    assert finding.message.startswith("1 file of /logs/agent not collected: /logs/agent: took too")
    with pytest.raises(SlowTransferError):
        asyncio.run(fetch_much(tmp_path / "2", "/logs/verifier"))
