"""A served ledger beside the same ledger on this machine: the same trials, sealed by the same code.

The server is a process of its own, over plain HTTP on loopback. In `serve-batch`, eight writers
seal batches of 100 trials without evidence, and rates are compared. In `serve-trial`, trials with
three files are sealed one by one, and the processor time of client and server together is compared
with that of sealing here.
"""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import ROOT, Bench, BenchmarkError, entry_point, environment
from benchmarks.row import Row, share_of, times_faster
from benchmarks.viewers import running
from proctor.ledger.keys import SigningKey, find_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.remote.mirror import open_mirror
from proctor.ledger.sealing import Submission, seal
from proctor.serve.tokens import Tokens, serve_directory
from tests.ledger.ledgers import record_bytes

_ORIGIN = "bench"
_WRITERS = 8
_TICKS = os.sysconf("SC_CLK_TCK")


def serve_batch_rows(bench: Bench, *, batches: int = 5) -> Iterator[Row]:
    """Batches of many writers."""
    with tempfile.TemporaryDirectory(dir=bench.data) as made:
        top = Path(made)
        figures = bench.least(
            lambda: _served_seconds(top, batches), lambda: _local_seconds(top, batches), rounds=3
        )
        yield times_faster("serve-batch", figures, "a ledger on this machine", at_least=0.7)


def serve_trial_rows(bench: Bench, *, trials: int = 200) -> Iterator[Row]:
    """Trials one by one."""
    with tempfile.TemporaryDirectory(dir=bench.data) as made:
        top = Path(made)
        files = top / "files"
        files.mkdir()
        figures = bench.least(
            lambda: _served_cpu(top, files, trials),
            lambda: _local_cpu(top, files, trials),
            rounds=3,
        )
        yield share_of("serve-trial", figures, "sealing here, processor time", at_most=2)


def make_submissions(files: Path, first: int, count: int, n_files: int) -> list[Submission]:
    """Trials to be sealed, each with files of its own."""
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
        with _having(variables):
            copy = open_mirror(str(said["address"]), variables, print)
            with OpenLedger.open(copy, key=_key(top)) as ledger:
                ledger.refresh()
                yield ledger, pid
    shutil.rmtree(directory)
    shutil.rmtree(top / "state")


@contextlib.contextmanager
def _having(variables: Mapping[str, str]) -> Iterator[None]:
    """Have these variables in the environment."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _served_seconds(top: Path, batches: int) -> float:
    with _served(top) as (ledger, _):
        return _write_all(top, ledger.where, batches)


def _local_seconds(top: Path, batches: int) -> float:
    with _local(top) as ledger, _having(_variables(top)):
        return _write_all(top, ledger.where, batches)


def _write_all(top: Path, ledger: str, batches: int) -> float:
    """How long several writers take together, once all of them are ready."""
    with contextlib.ExitStack() as stack:
        writers = []
        for number in range(_WRITERS):
            words = ["-m", "benchmarks.serving_writer", ledger, str(number), str(batches)]
            writers.append(
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, *words],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        env={
                            **environment(),
                            **_variables(top),
                            "PROCTOR_TOKEN": os.environ.get("PROCTOR_TOKEN", ""),
                        },
                        cwd=ROOT,
                        text=True,
                    )
                )
            )
        for writer in writers:
            _expect(writer, "ready")
        start = time.perf_counter()
        for writer in writers:
            if writer.stdin is not None:
                writer.stdin.write("go\n")
                writer.stdin.flush()
        for writer in writers:
            _expect(writer, "done")
        return time.perf_counter() - start


def _expect(writer: "subprocess.Popen[str]", word: str) -> None:
    found = writer.stdout.readline().strip() if writer.stdout is not None else ""
    if found != word:
        raise BenchmarkError(f"a writer said {found!r}; expected {word!r}")


def _served_cpu(top: Path, files: Path, trials: int) -> float:
    with _served(top) as (ledger, pid):
        before = _process_cpu(pid)
        return _seal_each(ledger, files, trials) + _process_cpu(pid) - before


def _local_cpu(top: Path, files: Path, trials: int) -> float:
    with _local(top) as ledger:
        return _seal_each(ledger, files, trials)


def _seal_each(ledger: OpenLedger, files: Path, trials: int) -> float:
    made = make_submissions(files, 0, trials, 3)
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
