"""Summing traces up and classifying their turns, beside the bare reading of the same files.

    python -m benchmarks.inspect_summary read|summarise DIRECTORY

One process each way. Both ways have to come to the same number of entries. What the traces are
like, `inspect_traces` says.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bench import Bench, check_same, figure, run_module
from benchmarks.inspect_traces import load_drawn_traces
from benchmarks.row import Row, share_of
from proctor.traces.entry import TraceKind
from proctor.traces.label_rules import Classifier
from proctor.traces.summary import summarise_file
from proctor.traces.trajectory import read_chunks


def summary_rows(bench: Bench, *, files: int = 10_000, size: int = 20_000) -> Iterator[Row]:
    """The row, with its bar."""
    directory = load_drawn_traces(bench, files, size)
    entries: dict[str, object] = {}

    def seconds(way: str) -> float:
        answer = run_module("inspect_summary", way, str(directory))
        entries[way] = answer["entries"]
        return figure(answer, "seconds")

    least = bench.least(lambda: seconds("summarise"), lambda: seconds("read"))
    check_same(f"{directory}: entries", entries["summarise"], entries["read"])
    yield share_of("summarise-10k", least, "reading the same files", at_most=3)


def _read(path: str) -> int:
    return sum(len(chunk.entries) for chunk in read_chunks(path, salvage=True))


def _summarise(path: str) -> int:
    return summarise_file(path, TraceKind.TRAJECTORY, Classifier).messages


_WAYS: dict[str, Callable[[str], int]] = {"read": _read, "summarise": _summarise}


def main(way: str, directory: str) -> None:
    """Go through every trace of a directory and print entries and seconds."""
    paths = [str(path) for path in sorted(Path(directory).glob("*.jsonl"))]
    gc.collect()
    start = time.perf_counter()
    entries = sum(map(_WAYS[way], paths))
    print(json.dumps({"entries": entries, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main(*sys.argv[1:])
