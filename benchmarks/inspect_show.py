"""One step of a large trace, by the whole command: from a file, and from a ledger.

A step near the end, so that nothing can be left out by luck. The sealed trace is asked for twice:
the first time all of it is held against the digest, and where its steps lie is remembered.
"""

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.bench import (
    Bench,
    BenchmarkError,
    command_seconds,
    figure,
    peak_megabytes,
    run_module,
)
from benchmarks.ledger import make_entry
from benchmarks.row import Row, share_of
from benchmarks.trace_data import load_rising_trace
from proctor.cli.main import main
from proctor.ledger.entry import EvidenceFile
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger

_SECONDS = 0.8
_MEGABYTES = 150
_NAME = "agent/trajectory.jsonl"
_TRIAL = "trial-0000000"


def show_rows(bench: Bench, *, megabytes: int = 1000) -> Iterator[Row]:
    """Seconds and memory, each with its bar."""
    path, last = load_rising_trace(bench, megabytes)
    ledger = _load_ledger(bench, path, megabytes)
    cache = ledger.parent / "cache"
    step = ("--step", str(last - 1))
    yield from _rows(bench, "show-step-1gb", ("show", str(path), *step), cache)
    sealed = ("show", _TRIAL, "--ledger", str(ledger), *step)
    shutil.rmtree(cache, ignore_errors=True)
    first = command_seconds(_command(sealed, cache))
    name = "show-sealed-1gb"
    yield share_of(f"{name}-first", (first, _SECONDS), f"{_SECONDS} s")
    yield from _rows(bench, name, sealed, cache)


def _rows(bench: Bench, name: str, words: tuple[str, ...], cache: Path) -> Iterator[Row]:
    command = _command(words, cache)
    seconds = min(command_seconds(command) for _ in range(bench.rounds))
    yield share_of(name, (seconds, _SECONDS), f"{_SECONDS} s", at_most=1)
    held = figure(run_module("inspect_show", str(cache), *words), "megabytes")
    limit = f"{_MEGABYTES} MB"
    yield share_of(f"{name}-memory", (held, _MEGABYTES), limit, at_most=1, unit="MB")


def _command(words: tuple[str, ...], cache: Path) -> list[str]:
    program = (
        f"import os, sys; os.environ['PROCTOR_CACHE'] = {str(cache)!r}; "
        "from proctor.cli.main import main; sys.exit(main())"
    )
    return ["-c", program, *words]


def _load_ledger(bench: Bench, trace: Path, megabytes: int) -> Path:
    """A ledger with one trial, whose evidence is the trace."""
    place = bench.data / f"show-1-{megabytes}"
    if (place / "whole").exists():
        return place / "ledger"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    entry = make_entry(0)
    record = {**json.loads(bytes(entry.record)), "outputs": {"trajectory_path": _NAME}}
    with OpenLedger.create(place / "ledger", make_key(place / "key", "bench"), "bench") as ledger:
        with trace.open("rb", buffering=0) as file:
            sha256, size = ledger.artifacts.put(file)
        ledger.artifacts.settle()
        evidence = (EvidenceFile(path=_NAME, sha256=sha256, size=size),)
        with ledger.writing():
            raw = msgspec.Raw(json.dumps(record).encode())
            ledger.append([msgspec.structs.replace(entry, record=raw, evidence=evidence)])
    (place / "whole").touch()
    return place / "ledger"


def _measure_memory(cache: str, words: list[str]) -> None:
    """Run a command in this process, and tell what it held."""
    os.environ["PROCTOR_CACHE"] = cache
    sys.argv = ["proctor", *words]
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        main()
    if "step " not in told.getvalue():
        raise BenchmarkError(f"proctor {' '.join(words)}: showed no step")
    print(json.dumps({"megabytes": peak_megabytes()}))


if __name__ == "__main__":
    _measure_memory(sys.argv[1], sys.argv[2:])
