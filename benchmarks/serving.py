"""A served ledger beside the same ledger on this machine: the same trials, sealed by the same code.

The server is a process of its own, over plain HTTP on loopback. `serve-batch` seals batches of 100
trials without evidence, and compares rates; `serve-trial` seals trials one by one with three files,
and compares the processor time of client and server together with that of sealing here.
"""

import contextlib
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import Bench, BenchmarkError, entry_point
from benchmarks.row import Row, share_of, times_faster
from benchmarks.viewers import running
from proctor.ledger.keys import SigningKey, find_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.remote.mirror import open_mirror
from proctor.ledger.sealing import Submission, seal
from proctor.serve.tokens import Tokens, serve_directory
from tests.ledger.ledgers import record_bytes

_ORIGIN = "bench"
_BATCH = 100
_TICKS = os.sysconf("SC_CLK_TCK")


def serving_rows(bench: Bench, *, batches: int = 20, trials: int = 200) -> Iterator[Row]:
    """The rows of a served ledger."""
    bench.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=bench.data) as made:
        top = Path(made)
        files = top / "files"
        files.mkdir()
        figures = bench.least(
            lambda: _served_seconds(top, files, batches),
            lambda: _local_seconds(top, files, batches),
            rounds=3,
        )
        yield times_faster("serve-batch", figures, "a ledger on this machine", at_least=0.7)
        figures = bench.least(
            lambda: _served_cpu(top, files, trials),
            lambda: _local_cpu(top, files, trials),
            rounds=3,
        )
        yield share_of("serve-trial", figures, "sealing here, processor time", at_most=2)


def _submissions(files: Path, first: int, count: int, n_files: int) -> list[Submission]:
    found = []
    for number in range(first, first + count):
        name = f"trial-{number:07}"
        evidence = []
        for which in range(n_files):
            path = files / f"{name}-{which}.txt"
            path.write_text(f"{name} {which}\n" * 300, encoding="ascii")
            evidence.append(path.name)
        own = Submission(record=record_bytes(name), where=name, root=files)
        found.append(replace(own, evidence=tuple(evidence)))
    return found


@contextlib.contextmanager
def _local(top: Path) -> Iterator[OpenLedger]:
    directory = top / "local"
    with OpenLedger.create(directory, _key(top), _ORIGIN) as ledger:
        yield ledger
    shutil.rmtree(directory)


def _key(top: Path) -> SigningKey:
    return find_key(None, _variables(top))


def _variables(top: Path) -> dict[str, str]:
    return {"HOME": str(top), "XDG_STATE_HOME": str(top / "state"), "XDG_CONFIG_HOME": str(top)}


@contextlib.contextmanager
def _served(top: Path) -> Iterator[tuple[OpenLedger, int]]:
    """The copy of a served ledger, open for writing, and the process that serves it."""
    directory = top / "served"
    OpenLedger.create(directory, _key(top), _ORIGIN).close()
    tokens = Tokens(serve_directory(_ORIGIN, _variables(top)))
    token = tokens.add("bench", may_write=True, experiments=())
    words = entry_point(
        "proctor.cli.main", "main", "serve", "--ledger", str(directory), "--port", "0", "--json"
    )
    with running(words, _variables(top)) as (said, pid):
        variables = {**_variables(top), "PROCTOR_TOKEN": token}
        before = dict(os.environ)
        os.environ.update(variables)
        try:
            copy = open_mirror(str(said["address"]), variables, print)
            with OpenLedger.open(copy, key=_key(top)) as ledger:
                ledger.refresh()
                yield ledger, pid
        finally:
            os.environ.clear()
            os.environ.update(before)
    shutil.rmtree(directory)
    shutil.rmtree(top / "state")


def _served_seconds(top: Path, files: Path, batches: int) -> float:
    with _served(top) as (ledger, _):
        return _seal_batches(ledger, files, batches)


def _local_seconds(top: Path, files: Path, batches: int) -> float:
    with _local(top) as ledger:
        return _seal_batches(ledger, files, batches)


def _seal_batches(ledger: OpenLedger, files: Path, batches: int) -> float:
    made = [_submissions(files, number * _BATCH, _BATCH, 0) for number in range(batches)]
    start = time.perf_counter()
    for batch in made:
        _check(len(seal(ledger, batch)), _BATCH)
    return time.perf_counter() - start


def _served_cpu(top: Path, files: Path, trials: int) -> float:
    with _served(top) as (ledger, pid):
        before = _process_cpu(pid)
        return _seal_each(ledger, files, trials) + _process_cpu(pid) - before


def _local_cpu(top: Path, files: Path, trials: int) -> float:
    with _local(top) as ledger:
        return _seal_each(ledger, files, trials)


def _seal_each(ledger: OpenLedger, files: Path, trials: int) -> float:
    made = _submissions(files, 0, trials, 3)
    start = _own_cpu()
    for each in made:
        _check(len(seal(ledger, [each])), 1)
    return _own_cpu() - start


def _check(found: int, expected: int) -> None:
    if found != expected:
        raise BenchmarkError(f"{found} sealed; expected {expected}")


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _process_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
