"""The ledger beside the same work done bare: system calls, hashes and decoding, in one run.

Records have some 10 KB, as real ones do. What is appended is made before the clock starts, for
both: sealing also reads a record strictly, and that is measured nowhere here.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.bench import (
    Bench,
    BenchmarkError,
    check_same,
    cpu_seconds,
    entry_point,
    figure,
    run_module,
    run_python,
)
from benchmarks.row import Row, share_of, times_faster
from benchmarks.sizes import name_of_size
from proctor.ledger.derived import INDEX, find_folder
from proctor.ledger.entry import TrialEntry, decode_line, encode_entry
from proctor.ledger.keys import SigningKey, make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.row import PUBLIC
from proctor.ledger.verification.verify import verify_ledger

_SINGLE = 200
_BATCHES = 30
_BATCH = 100
_VERIFIED = 20_000
_LISTED = 100_000
_EXPERIMENT = "experiment-050"
_REVIEW = (
    "(SELECT verdict FROM remarks WHERE remarks.record = trials.record AND verdict IS NOT NULL "
    "ORDER BY remarks.seq DESC LIMIT 1) AS review"
)


def make_entry(number: int, size: int = 10_000) -> TrialEntry:
    """A trial whose line has about this size."""
    record = {
        "trial_id": f"trial-{number:07}",
        "experiment_id": f"experiment-{number % 100:03}",
        "dataset_id": "bench@1",
        "timestamp": "2026-11-15T10:00:00Z",
        "task": {"task_id": f"task-{number % 89:02}", "task_revision": "0" * 64},
        "agent": {"adapter": "bench", "model": f"model-{number % 7}"},
        "environment": {"runtime_image": "bench", "compute_backend": "none"},
        "inputs": {"instruction": f"{number} " + "x" * (size - 770)},
        "evaluation": {"reward": float(number % 2)},
        "completeness": "complete",
    }
    return TrialEntry(at="", seq=0, record=msgspec.Raw(json.dumps(record).encode()))


# Appending


def append_rows(bench: Bench) -> Iterator[Row]:
    """One entry at a time, and in batches."""
    single = [[make_entry(number)] for number in range(_SINGLE)]
    numbers = range(_BATCHES * _BATCH)
    batches = [list(map(make_entry, batch)) for batch in itertools.batched(numbers, _BATCH)]
    with tempfile.TemporaryDirectory(dir=bench.data) as place:
        scratch = Path(place)
        key = make_key(scratch / "key", "bench")
        for name, entries in (("append-durable", single), ("append-batch", batches)):
            ours = partial(_our_seconds, scratch, key, entries)
            figures = bench.least(ours, partial(_bare_seconds, scratch, entries))
            yield times_faster(name, figures, "encode, hash, the same calls", at_least=0.7)


def _our_seconds(scratch: Path, key: SigningKey, batches: Sequence[Sequence[TrialEntry]]) -> float:
    directory = scratch / "ours"
    with OpenLedger.create(directory, key, "bench") as ledger:
        start = time.perf_counter()
        for batch in batches:
            with ledger.writing():
                ledger.append(batch)
        seconds = time.perf_counter() - start
    shutil.rmtree(directory)
    return seconds


def _bare_seconds(scratch: Path, batches: Sequence[Sequence[TrialEntry]]) -> float:
    """Encode and hash, and the system calls of an append: lock, look, lines, checkpoint."""
    directory = scratch / "bare"
    (directory / "entries").mkdir(parents=True)
    note = b"x" * 180
    (directory / "checkpoint").write_bytes(note)
    segment = directory / "entries" / "000000.jsonl"
    segment.touch()
    start = time.perf_counter()
    for batch in batches:
        lines = [encode_entry(entry) for entry in batch]
        for line in lines:
            hashlib.sha256(b"\x00" + line).digest()
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (directory / "checkpoint").read_bytes()
        _write_synced(segment, b"\n".join(lines) + b"\n", os.O_APPEND, os.fdatasync)
        temporary = directory / ".checkpoint.tmp"
        _write_synced(temporary, note, os.O_CREAT | os.O_EXCL, os.fsync)
        temporary.rename(directory / "checkpoint")
        _sync_directory(directory)
        os.close(lock)
    seconds = time.perf_counter() - start
    shutil.rmtree(directory)
    return seconds


def _write_synced(path: Path, data: bytes, how: int, sync: Callable[[int], None]) -> None:
    fd = os.open(path, os.O_WRONLY | how, 0o666)
    os.write(fd, data)
    sync(fd)
    os.close(fd)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


# Verifying


def verify_rows(bench: Bench, *, count: int = _VERIFIED) -> Iterator[Row]:
    """Both depths of verification, and the memory of the whole one."""
    directory = load_ledger(bench, count, 10_000)
    files = sorted((directory / "entries").iterdir())
    # Once unmeasured: the first pass fills the page cache.
    _hash_seconds(files)

    def ours(*, fast: bool) -> float:
        start = time.perf_counter()
        found = verify_ledger(directory, fast=fast)
        if not found.is_sound:
            raise BenchmarkError(f"{directory}: {found.damage[0]}")
        return time.perf_counter() - start

    fast = bench.least(lambda: ours(fast=True), lambda: _hash_seconds(files))
    yield times_faster("verify-fast", fast, "one SHA-256 over the same bytes", at_least=0.6)
    # Verification derives the index again and compares every row, so it must be there.
    with OpenLedger.open(directory) as ledger:
        ledger.refresh()
    index = (find_folder(directory) or Path()) / INDEX
    one = bench.least(lambda: ours(fast=False), lambda: _decode_seconds(files, index))
    yield times_faster("verify", one, "decode, hash, read the index", at_least=0.6)
    small = load_ledger(bench, max(count // 10, 1), 10_000)
    peaks = _peak(directory), _peak(small)
    yield share_of("verify-memory", peaks, "a tenth of the entries", at_most=1.5, unit="MB")


def _peak(directory: Path) -> float:
    return figure(run_module("ours_verify", str(directory)), "megabytes")


def _hash_seconds(files: Sequence[Path]) -> float:
    start = time.perf_counter()
    for path in files:
        hasher = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(1 << 20):
                hasher.update(chunk)
    return time.perf_counter() - start


def _decode_seconds(files: Sequence[Path], index: Path) -> float:
    """Hash and decode every line, hash every record, read every row of the index."""
    start = time.perf_counter()
    for path in files:
        with path.open("rb") as file:
            for line in file:
                hashlib.sha256(b"\x00" + line[:-1]).digest()
                entry = decode_line(line, "bench")
                if isinstance(entry, TrialEntry):
                    hashlib.sha256(entry.record).digest()
    with contextlib.closing(sqlite3.connect(index)) as connection:
        for table in ("entries", "trials"):
            for _ in connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - our own names
                pass
    return time.perf_counter() - start


# Listing


def list_rows(bench: Bench, *, count: int = _LISTED) -> Iterator[Row]:
    """A list and a look-up, beside a bare query of the same index in a fresh interpreter.

    What counts is what the command takes beyond `proctor --version`, in processor time: its start
    has a row of its own, and would hide the rest. Nothing is taken off the other side. The rows
    called `whole` have the whole command.
    """
    directory = load_ledger(bench, count, 1000)
    name = f"list-{name_of_size(count)}"
    listed = _ask(bench, directory, "experiment", _EXPERIMENT)
    yield from listed.rows(name)
    yield from _ask(bench, directory, "trial", f"trial-{count // 2:07}").rows("find-id")
    peer = min(_peer_seconds(_load_files(bench, count)) for _ in range(2))
    figures = (listed.whole, peer)
    yield times_faster("list-peer", figures, "a JSON file a record, all parsed", at_least=20)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Processor time of a list, of the bare query, and of `proctor --version`."""

    whole: float
    bare: float
    version: float

    def rows(self, name: str) -> Iterator[Row]:
        beyond = max(self.whole - self.version, 1e-6)
        yield share_of(name, (beyond, self.bare), "bare SQLite, whole process", at_most=3)
        yield share_of(f"{name}-whole", (self.whole, self.bare), "bare SQLite, whole process")


def _ask(bench: Bench, directory: Path, what: str, value: str) -> _Asked:
    asked = ("--experiment", value) if what == "experiment" else ("--where", f"{what}={value}")
    words = ("ledger", "list", "--ledger", str(directory), *asked, "--json")
    ours = entry_point("proctor.cli.main", "main", *words)
    # Once unmeasured: the first command may have to make the index.
    listed = json.loads(run_python(ours))
    index = (find_folder(directory) or Path()) / INDEX
    columns = ", ".join(f"{field} AS {key}" for key, field in PUBLIC.items() if key != "review")
    query = f"SELECT {columns}, {_REVIEW} FROM trials WHERE {what}_id = ? ORDER BY seq"  # noqa: S608
    bare = entry_point("benchmarks.floor_rows", "main", str(index), query, value)
    check_same(f"{what} {value}", listed, json.loads(run_python(bare)))
    version = entry_point("proctor.cli.main", "main", "--version")
    takes = [partial(cpu_seconds, each) for each in (ours, bare, version)]
    # Twice as often as others: these take little, and one is taken off another.
    return _Asked(*replace(bench, rounds=2 * bench.rounds).least_of(*takes))


def _load_files(bench: Bench, count: int) -> Path:
    """The same records as aec-bench keeps them: a file each."""

    def fill(root: Path) -> None:
        for number in range(count):
            record = bytes(make_entry(number, 1000).record)
            path = root / f"experiment-{number % 100:03}" / f"trial-{number:07}.json"
            if number < 100:
                path.parent.mkdir()
            path.write_bytes(record)

    return bench.kept(f"records-{count}", fill)


def _peer_seconds(root: Path) -> float:
    start = time.process_time()
    records = [json.loads(path.read_text()) for path in sorted(root.glob("*/*.json"))]
    wanted = [record for record in records if record["experiment_id"] == _EXPERIMENT]
    json.dumps(wanted)
    return time.process_time() - start


def load_ledger(bench: Bench, count: int, size: int) -> Path:
    """A ledger of so many trials; it is kept from run to run."""

    def fill(directory: Path) -> None:
        with OpenLedger.create(directory, make_key(directory / "key", "bench"), "bench") as ledger:
            for batch in itertools.batched(range(count), 1000):
                with ledger.writing():
                    ledger.append([make_entry(number, size) for number in batch])
            ledger.refresh()

    return bench.kept(f"ledger-2-{count}-{size}", fill)
