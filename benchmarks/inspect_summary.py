"""Summaries with labels, in one pass, against one decoding pass over the same traces.

    python -m benchmarks.inspect_summary decode|summarise DIRECTORY

The floor decodes every line with Python's own json and does nothing else. One process each way;
both have to find the same number of entries. `inspect_traces` describes the traces.
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
from proctor.traces.summary import summarise_file


def summary_rows(bench: Bench, *, files: int = 10_000, size: int = 20_000) -> Iterator[Row]:
    """The row, with its bar."""
    directory = load_drawn_traces(bench, files, size)
    entries: dict[str, object] = {}

    def seconds(way: str) -> float:
        answer = run_module("inspect_summary", way, str(directory))
        entries[way] = answer["entries"]
        return figure(answer, "seconds")

    least = bench.least(lambda: seconds("summarise"), lambda: seconds("decode"))
    check_same(f"{directory}: entries", entries["summarise"], entries["decode"])
    yield share_of("summarise-10k", least, "one decoding pass", at_most=4)


def _decode(path: str) -> int:
    with Path(path).open(encoding="utf-8") as lines:
        return sum("role" in json.loads(line) for line in lines)


def _summarise(path: str) -> int:
    return summarise_file(path, TraceKind.TRAJECTORY, labelled=True).messages


_WAYS: dict[str, Callable[[str], int]] = {"decode": _decode, "summarise": _summarise}


def main(way: str, directory: str) -> None:
    """Go through every trace of a directory and print entries and seconds."""
    paths = [str(path) for path in sorted(Path(directory).glob("*.jsonl"))]
    gc.collect()
    start = time.perf_counter()
    entries = sum(map(_WAYS[way], paths))
    print(json.dumps({"entries": entries, "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main(*sys.argv[1:])
