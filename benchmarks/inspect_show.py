"""One step of a large trace, by the whole command: from a file, and from a ledger.

A step near the end, so that nothing can be left out by luck. The sealed trace is asked for twice:
the first time all of it is held against the digest, and where its steps lie is remembered. Beside
each, a fresh interpreter seeks and decodes the same lines bare (`floor_steps`). All in processor
time: two processes that look through a file are counted as two.
"""

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.bench import (
    Bench,
    BenchmarkError,
    check_same,
    cpu_seconds,
    entry_point,
    figure,
    peak_megabytes,
    run_module,
    run_python,
)
from benchmarks.ledger import make_entry
from benchmarks.row import Row, share_of
from benchmarks.trace_data import load_rising_trace
from proctor.cli.main import main
from proctor.ledger.artifacts import FileArtifacts
from proctor.ledger.entry import EvidenceFile
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.step_parts import find_sealed_parts

_MEGABYTES = 150
_NAME = "agent/trajectory.jsonl"
_TRIAL = "trial-0000000"


def show_rows(bench: Bench, *, megabytes: int = 1000) -> Iterator[Row]:
    """Seconds beside a floor and memory beside a limit, each with its bar."""
    path, last = load_rising_trace(bench, megabytes)
    ledger = _load_ledger(bench, path, megabytes)
    cache, step = ledger.parent / "cache", ("--step", str(last - 1))
    loose = _Shown("show-step-1gb", ("show", str(path), *step), cache)
    figures = loose.least(bench, _floor("file", path, str(last - 1)))
    yield share_of(loose.name, figures, "find, seek, decode", at_most=3)
    yield loose.memory_row()
    sealed = _Shown("show-sealed-1gb", ("show", _TRIAL, "--ledger", str(ledger), *step), cache)
    shutil.rmtree(cache, ignore_errors=True)
    first = cpu_seconds(sealed.command)
    figures = sealed.least(bench, _find_frames(ledger, cache, last - 1))
    yield share_of(f"{sealed.name}-first", (first, figures[1]), "seek, unpack, decode")
    yield share_of(sealed.name, figures, "seek, unpack, decode", at_most=3)
    yield sealed.memory_row()


@dataclass(frozen=True, slots=True)
class _Shown:
    """A command that shows one step."""

    name: str
    words: tuple[str, ...]
    cache: Path

    @property
    def command(self) -> list[str]:
        program = (
            f"import os, sys; os.environ['PROCTOR_CACHE'] = {str(self.cache)!r}; "
            "from proctor.cli.main import main; sys.exit(main())"
        )
        return ["-c", program, *self.words]

    def least(self, bench: Bench, floor: list[str]) -> tuple[float, float]:
        """Seconds of it and of a floor that decodes the same entries."""
        document = json.loads(run_python([*self.command, "--json"]))
        (shown,) = document.get("traces", [document])
        check_same(self.name, shown["entries"], json.loads(run_python(floor)))
        return bench.least(lambda: cpu_seconds(self.command), lambda: cpu_seconds(floor))

    def memory_row(self) -> Row:
        held = figure(run_module("inspect_show", str(self.cache), *self.words), "megabytes")
        figures, limit = (held, _MEGABYTES), f"{_MEGABYTES} MB"
        return share_of(f"{self.name}-memory", figures, limit, at_most=1, unit="MB")


def _floor(kind: str, path: Path, step: str, *frames: str) -> list[str]:
    return entry_point("benchmarks.floor_steps", "main", kind, str(path), step, *frames)


def _find_frames(ledger: Path, cache: Path, step: int) -> list[str]:
    """The floor that is told which parts of the artifact may hold the step."""
    (path,) = ledger.glob("artifacts/sha256/*/*.zst")
    parts = find_sealed_parts(FileArtifacts(ledger), path.stem, cache) or []
    frames = [f"{part.begin}:{part.end}" for part in parts if part.survey.may_hold(step, step)]
    return _floor("frames", path, str(step), *frames)


def _load_ledger(bench: Bench, trace: Path, megabytes: int) -> Path:
    """A ledger with one trial, whose evidence is the trace."""

    def fill(place: Path) -> None:
        entry = make_entry(0)
        record = {**json.loads(bytes(entry.record)), "outputs": {"trajectory_path": _NAME}}
        key = make_key(place / "key", "bench")
        with OpenLedger.create(place / "ledger", key, "bench") as ledger:
            with trace.open("rb", buffering=0) as file:
                sha256, size = ledger.artifacts.put(file)
            ledger.artifacts.settle()
            evidence = (EvidenceFile(path=_NAME, sha256=sha256, size=size),)
            with ledger.writing():
                raw = msgspec.Raw(json.dumps(record).encode())
                ledger.append([msgspec.structs.replace(entry, record=raw, evidence=evidence)])

    return bench.kept(f"show-1-{megabytes}", fill) / "ledger"


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
