"""What machines send: evidence is bounded, continued and counted, and what waited is sent once."""

import asyncio
import io
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from backports import zstd

from proctor.digest import sha256_hex
from proctor.environments.sandbox.syscalls import mount, unmount
from proctor.errors import NotSealedError
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.entry import EvidenceFile, encode_entry
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.machines import sign_entries
from proctor.ledger.place import open_reader, open_writer
from proctor.ledger.query import find_trial
from proctor.ledger.remote.client import PIECE, LedgerClient, pack_artifact
from proctor.ledger.remote.mirror import Mirror
from proctor.ledger.remote.outbox import Spool
from proctor.ledger.row import read_row
from proctor.ledger.sealing import NewEntry, seal
from proctor.ledger.verification.verify import verify_ledger
from proctor.ledger.withhold import Why, withhold_evidence
from proctor.serve.app import Front
from proctor.serve.intake import Submitted
from proctor.serve.serving import ServeOptions, prepare
from proctor.serve.tokens import serve_directory
from proctor.serve.uploads import Part, Uploads
from proctor.serve.writer import Writer
from proctor.web.app import make_app
from proctor.web.data_source import DataSource
from tests.ledger.ledgers import ORIGIN, find_key, record_bytes, small
from tests.serve.attackers import audit_lines
from tests.serve.servers import (
    EXPERIMENT,
    Machine,
    ServedLedger,
    home_variables,
    serving,
    submission_of,
    trial,
)

pytestmark = pytest.mark.process
DAY = 86400.0
_MS_REMOUNT = 32


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLedger]:
    """A server that tests of this file share."""
    with serving(tmp_path_factory.mktemp("served"), is_encrypted=False) as found:
        yield found


@contextmanager
def connected(machine: Machine) -> Iterator[LedgerClient]:
    with machine.using():
        client = LedgerClient(machine.url, machine.token)
        yield client
        client.close()


def drawn(size: int, seed: int) -> bytes:
    """Bytes that cannot be compressed."""
    return random.Random(seed).randbytes(size)


def packed(*contents: bytes) -> bytes:
    return b"".join(
        pack_artifact(sha256_hex(each), len(each), zstd.compress(each)) for each in contents
    )


def stored(ledger: Path, *contents: bytes) -> list[bool]:
    return [FileArtifacts(ledger).holds(sha256_hex(each)) for each in contents]


def test_what_no_entry_names_is_removed_after_a_day(tmp_path: Path) -> None:
    ledger = small(tmp_path)
    contents = named, old, other, new = [drawn(2000, seed) for seed in range(4)]
    uploads = Uploads(ledger, tmp_path, 1 << 20)
    uploads.store_small("node", packed(named, old), 0.0)
    uploads.store_small("another", packed(other), 1.0)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence/file").write_bytes(named)
    with open_writer(ledger, find_key(tmp_path)) as writer:
        seal(writer, [submission_of("trial", tmp_path / "evidence")])
    uploads.unreferenced.remove([sha256_hex(named)])
    uploads.store_small("node", packed(new), 2.0)
    uploads.note()
    for path in (ledger / "artifacts").rglob("*.zst"):
        os.utime(path, (0, 0))
    # Another server finds the list.
    uploads = Uploads(ledger, tmp_path, 1 << 20)
    with open_reader(ledger) as reader:
        reader.refresh()
        uploads.begin(reader, DAY)
        assert stored(ledger, *contents) == [True, False, True, True]
        # A client was told that it is there.
        uploads.unreferenced.renew([sha256_hex(other)], DAY)
        uploads.remove_old(reader, DAY + 10)
        assert stored(ledger, *contents) == [True, False, True, False]
        uploads.remove_old(reader, 2 * DAY)
        assert stored(ledger, *contents) == [True, False, False, False]
    assert (tmp_path / "unreferenced.jsonl").read_bytes() == b""
    assert verify_ledger(ledger).damage == []


def test_a_trial_does_not_keep_evidence_that_is_withheld_for_it(tmp_path: Path) -> None:
    ledger, content = small(tmp_path), drawn(2000, 0)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence/file").write_bytes(content)
    with open_writer(ledger, find_key(tmp_path)) as writer:
        seal(writer, [submission_of("trial", tmp_path / "evidence")])
        writer.refresh()
        withhold_evidence(writer, find_trial(writer, "trial"), Why("private", "owner"))
    uploads = Uploads(ledger, tmp_path, 1 << 20)
    # It came at the moment when it was withheld.
    uploads.store_small("node", packed(content), 0.0)
    uploads.note()
    (path,) = (ledger / "artifacts").rglob("*.zst")
    os.utime(path, (0, 0))
    # Another server finds it on the list.
    uploads = Uploads(ledger, tmp_path, 1 << 20)
    with open_reader(ledger) as reader:
        reader.refresh()
        uploads.begin(reader, DAY)
    assert stored(ledger, content) == [False]


def test_what_is_held_back_is_removed_after_a_day(tmp_path: Path) -> None:
    ledger, content = small(tmp_path), drawn(2000, 0)
    uploads = Uploads(ledger, tmp_path, 1 << 20)
    uploads.store_small("node", packed(content), 0.0, {sha256_hex(content)})
    (path,) = (tmp_path / "uploads").glob("*/*")
    with open_reader(ledger) as reader:
        uploads.remove_old(reader, time.time() + DAY - 60)
        assert path.exists()
        uploads.remove_old(reader, time.time() + DAY + 60)
    assert not path.exists()
    assert stored(ledger, content) == [False]


def test_what_is_being_sealed_on_the_servers_machine_is_not_removed(tmp_path: Path) -> None:
    ledger, content = small(tmp_path), drawn(2000, 0)
    uploads = Uploads(ledger, tmp_path, 1 << 20)
    uploads.store_small("node", packed(content), 0.0)
    (path,) = (ledger / "artifacts").rglob("*.zst")
    os.utime(path, (0, 0))
    # Stored before the log is locked, and not in it yet.
    FileArtifacts(ledger).put(io.BytesIO(content))
    with open_reader(ledger) as reader:
        uploads.remove_old(reader, time.time())
        assert stored(ledger, content) == [True]
        os.utime(path, (0, 0))
        uploads.remove_old(reader, time.time())
        assert stored(ledger, content) == [False]


def test_evidence_that_was_removed_meanwhile_is_not_sealed(tmp_path: Path) -> None:
    ledger = small(tmp_path)
    file = EvidenceFile(path="file", sha256="0" * 64, size=1)
    entry = msgspec.structs.replace(trial("without"), evidence=(file,))
    writer = Writer(ledger, find_key(tmp_path), {file.sha256})
    new = NewEntry(entry, read_row(entry).subject, "sealed")
    with open_reader(ledger) as reader:
        with pytest.raises(NotSealedError, match="was removed; send it again"):
            asyncio.run(writer.submit(Submitted([new], [])))
        assert reader.refresh().tree.size == 1
    writer.close()


def test_an_interrupted_upload_goes_on_where_it_stopped(served: ServedLedger) -> None:
    machine = served.machine()
    data = drawn(2 * PIECE + 1000, 10)
    sha256, compressed = sha256_hex(data), zstd.compress(data)
    size, total = len(data), len(compressed)

    class Breaking(io.BytesIO):
        """Can be read once."""

        def read(self, *args: Any) -> bytes:
            if self.tell():
                raise OSError("this machine is out of power")
            return super().read(*args)

    with connected(machine) as client:
        with pytest.raises(OSError, match="out of power"):
            client.upload_large(sha256, size, total, Breaking(compressed))
        client.upload_large(sha256, size, total, io.BytesIO(compressed))
        assert client.missing([sha256]) == set()
        # What is there is not sent again.
        client.upload_large(sha256, size, total, io.BytesIO(compressed))
    lines = [line for line in audit_lines(served, token=machine.home.name) if "offset" in line]
    assert [line["offset"] for line in lines] == [0, PIECE, 2 * PIECE]
    assert sum(line["bytes"] for line in lines) == total


def test_parts_of_another_compression_are_sent_anew(served: ServedLedger) -> None:
    machine = served.machine()
    data = drawn(PIECE + 1000, 11)
    sha256, compressed = sha256_hex(data), zstd.compress(data)
    folder = serve_directory(ORIGIN, served.env) / "uploads"
    folder /= sha256_hex(machine.home.name.encode())[:32]
    folder.mkdir(parents=True)
    (folder / f"{sha256}-{len(compressed)}").write_bytes(bytes(PIECE))
    with connected(machine) as client:
        client.upload_large(sha256, len(data), len(compressed), io.BytesIO(compressed))
        assert client.missing([sha256]) == set()
    assert not list(folder.iterdir())


def test_the_last_of_the_disk_is_left_to_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_RESERVE", 1 << 62), ("_RESERVED_PART", 1)):
        monkeypatch.setattr(f"proctor.serve.uploads.{name}", value)

    async def ask(http: httpx.AsyncClient) -> list[tuple[int, str]]:
        answers = [await http.post(path, content=b"any") for path in ("/artifacts", "/submit")]
        return [(answer.status_code, answer.json()["message"]) for answer in answers]

    for status, message in asyncio.run(_asking(tmp_path, ask)):
        assert (status, message.startswith("no room on the server: its disk has")) == (503, True)


def test_who_has_no_token_asks_for_few_artifacts_at_once(tmp_path: Path) -> None:
    async def ask(http: httpx.AsyncClient) -> list[int]:
        digests = [sha256_hex(b"%d" % number) for number in range(101)]
        bodies = [{"artifacts": digests[:count]} for count in (100, 101)]
        answers = [await http.post("/artifacts/missing", json=body) for body in bodies]
        del http.headers["authorization"]
        answers += [await http.post("/artifacts/missing", json=body) for body in bodies]
        return [answer.status_code for answer in answers]

    assert asyncio.run(_asking(tmp_path, ask)) == [200, 200, 200, 413]


def test_files_of_a_bulk_upload_are_bounded_together(tmp_path: Path) -> None:
    uploads = Uploads(small(tmp_path), tmp_path, 5000)
    contents = [bytes([number]) * 2000 for number in range(3)]
    with pytest.raises(NotSealedError, match="evidence of 6,000 bytes"):
        uploads.store_small("node", packed(*contents), 0.0)
    assert uploads.store_small("node", packed(*contents[1:]), 0.0) == 2


def test_the_writer_outlasts_clients_that_leave_and_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(small(tmp_path), find_key(tmp_path))

    def fail(_: object) -> None:
        monkeypatch.undo()
        raise ValueError("something that nobody foresaw")

    async def leave() -> int:
        is_over = threading.Event()
        tasks = [asyncio.ensure_future(writer.run(lambda _: is_over.wait(20))) for _ in range(2)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        monkeypatch.setattr(OpenLedger, "refresh", fail)
        is_over.set()
        return await asyncio.wait_for(writer.run(lambda ledger: ledger.refresh().tree.size), 20)

    assert asyncio.run(leave()) == 1
    writer.close()


async def _asking(top: Path, ask: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Ask a public server in this process."""
    options = ServeOptions(
        directory=small(top), host="127.0.0.1", port=0, key_file=top / "key", is_public=True
    )
    server = prepare(options, home_variables(top))
    token = server.served.tokens.add("node", may_write=True, experiments=())
    app = Front(server.served, make_app(DataSource(ledger=options.directory), hosts=None))
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://node",
            headers={"authorization": f"Bearer {token}"},
        ) as http:
            return await ask(http)
    finally:
        server.served.writer.close()
        server._listening.close()


def test_parts_that_a_killed_server_did_not_put_together_are_used(tmp_path: Path) -> None:
    ledger, data = small(tmp_path), drawn(5000, 12)
    sha256, compressed = sha256_hex(data), zstd.compress(data)
    total = len(compressed)
    uploads = Uploads(ledger, tmp_path, 1 << 20)
    part = Part(sha256, 0, len(data), total)
    assert uploads.store_part("node", part, compressed[:2000], 0.0) == 2000
    (path,) = (tmp_path / "uploads").glob("*/*")
    path.write_bytes(compressed)
    assert uploads.find_offset("node", sha256, total) == total - 1
    part = part._replace(offset=total - 1)
    assert uploads.store_part("node", part, compressed[-1:], 0.0) == total
    assert stored(ledger, data) == [True]
    assert not path.exists()


def test_many_upload_the_same_at_the_same_time(served: ServedLedger) -> None:
    machine = served.machine()
    data = drawn(2 * PIECE + 1000, 13)
    sha256, compressed = sha256_hex(data), zstd.compress(data)
    with connected(machine) as client, ThreadPoolExecutor(4) as pool:
        running = [
            pool.submit(
                client.upload_large, sha256, len(data), len(compressed), io.BytesIO(compressed)
            )
            for _ in range(4)
        ]
        for each in running:
            each.result()
        assert client.missing([sha256]) == set()
    with open_reader(served.directory) as ledger:
        ledger.artifacts.check(sha256, len(data))


def test_only_what_is_missing_is_sent(served: ServedLedger, tmp_path: Path) -> None:
    shared, own = drawn(PIECE + 1000, 14), drawn(1000, 15)
    (tmp_path / "shared").write_bytes(shared)
    first, second = served.machine(), served.machine()
    first.seal("has-all", evidence=tmp_path)
    (tmp_path / "own").write_bytes(own)
    second.seal("has-more", evidence=tmp_path)
    sent = [
        sum(line["bytes"] for line in audit_lines(served, token=each.home.name) if "bytes" in line)
        for each in (first, second)
    ]
    # The entries themselves, in addition.
    assert len(shared) < sent[0] < len(shared) + 20_000
    assert len(own) < sent[1] < len(own) + 20_000


def keep_waiting(
    mirror: Mirror, machine: Machine, *names: str, experiment: str = EXPERIMENT
) -> None:
    """Keep a batch of trials, with evidence, as if the server had not been reached."""
    name = mirror._enrol(machine.key)
    drafts = []
    for each in names:
        digest, size = mirror.artifacts.put(io.BytesIO(each.encode()))
        file = EvidenceFile(path="own", sha256=digest, size=size)
        draft = trial(each, experiment_id=experiment)
        drafts.append(msgspec.structs.replace(draft, evidence=(file,)))
    signed = sign_entries(drafts, ORIGIN, name, machine.key)
    mirror._outbox.keep(drafts, [encode_entry(each) for each in signed])


def test_two_senders_send_each_batch_once(served: ServedLedger) -> None:
    machine = served.machine()
    mirrors = [machine.mirror() for _ in range(4)]
    names = [f"waiting-{number}" for number in range(8)]
    with machine.using(), ThreadPoolExecutor(4) as pool:
        for name in names:
            keep_waiting(mirrors[0], machine, name)
        sent = list(pool.map(Mirror.send_waiting, mirrors))
    assert sorted(sent) == [0, 0, 0, 8]
    assert [each.refused for each in mirrors] == [[]] * 4
    assert [name for name in served.trials() if name.startswith("waiting")] == names
    assert not mirrors[0].spool
    assert verify_ledger(served.directory).damage == []


def test_one_that_is_refused_keeps_back_no_other(served: ServedLedger) -> None:
    machine, other = served.machine(), served.machine()
    mirror = machine.mirror()
    names = [f"batch-{number}" for number in range(5)]
    with machine.using():
        keep_waiting(mirror, machine, *names)
    changed = record_bytes("batch-3", **{"evaluation.reward": 0.0})
    with other.opened() as ledger:
        seal(ledger, [replace(submission_of("batch-3"), record=changed)])
    with machine.using():
        assert mirror.send_waiting() == 4
    (why,) = mirror.refused
    assert "batch-3" in why
    kept = Path(why.rpartition(" ")[2])
    (line,) = kept.read_bytes().splitlines()
    assert b'"batch-3"' in line
    assert "sealed already" in kept.with_name(f"{kept.name}.why").read_text()
    assert sorted(name for name in served.trials() if name.startswith("batch")) == names
    assert not mirror.spool


def test_trials_that_the_token_may_not_submit_keep_back_no_other(served: ServedLedger) -> None:
    machine = served.machine(experiments=(EXPERIMENT,))
    mirror = machine.mirror()
    with machine.using():
        # As if the token had been made for fewer experiments meanwhile.
        keep_waiting(mirror, machine, "forbidden", experiment="other")
        keep_waiting(mirror, machine, "permitted")
    (sealed,) = machine.seal("after-the-forbidden")
    assert sealed.is_new
    assert {"permitted", "after-the-forbidden"} <= set(served.trials())
    assert "forbidden" not in served.trials()
    assert not mirror.spool
    (why,) = (machine.home / ".local/state/proctor/ledgers").glob("*/spool/refused/*.why")
    assert "may not write to the experiment 'other'" in why.read_text()


def test_evidence_that_another_process_sent_is_not_missed(
    served: ServedLedger, tmp_path: Path
) -> None:
    machine = served.machine()
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    # Too large for the memory: it is a file of the copy, which both processes use.
    (evidence / "file").write_bytes(bytes(1 << 19))
    with machine.opened() as first, machine.opened() as second:
        assert isinstance(second.remote, Mirror)
        client = second.remote.client
        missing = client.missing

        def missing_before(digests: Sequence[str]) -> set[str]:
            found = missing(digests)
            if first.find_sealed(EXPERIMENT, "first") is None:
                seal(first, [submission_of("first", evidence)])
            return found

        client.missing = missing_before  # type: ignore[method-assign]
        (sealed,) = seal(second, [submission_of("second", evidence)])
    assert sealed.is_new
    assert {"first", "second"} <= set(served.trials())


def test_a_batch_that_is_sent_meanwhile_is_passed_over(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(3):
        spool.add([b"%d" % number])
    found = []
    for name, lines in spool:
        found += lines
        for path in tmp_path.glob("*-*.jsonl"):
            if path.name > name:
                path.unlink()
    assert found == [b"0"]
    assert len(spool) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_server_without_room_gets_it_later(tmp_path: Path) -> None:
    evidence, disk = tmp_path / "evidence", tmp_path / "ledger"
    evidence.mkdir()
    (evidence / "file").write_bytes(drawn(2 << 20, 16))
    disk.mkdir()
    mount("none", str(disk), "tmpfs", options="size=2m,mode=700")
    try:
        with serving(tmp_path, is_encrypted=False) as served:
            machine = served.machine()
            (waiting,) = machine.seal("no-room", evidence=evidence)
            assert waiting.status == "waiting"
            with machine.using():
                mirror = machine.mirror()
                mount("none", str(disk), flags=_MS_REMOUNT, options="size=64m")
                assert mirror.send_waiting() == 1
            assert served.trials() == ["no-room"]
            assert verify_ledger(served.directory).damage == []
    finally:
        unmount(str(disk))
