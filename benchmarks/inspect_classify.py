"""Labelling every turn by the rules, beside the bare reading of the same traces."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench import Bench, check_same, figure, run_module
from benchmarks.row import Row, share_of
from benchmarks.trace_data import load_trace_files
from proctor.inspection.classification.rules import Classifier
from proctor.trajectory.read import read_chunks


def classify_rows(bench: Bench, *, files: int = 10_000, size: int = 20_000) -> Iterator[Row]:
    """The time of reading and labelling over the time of reading alone."""
    directory = load_trace_files(bench, files, size)[0].parent
    entries: dict[str, object] = {}

    def seconds(way: str) -> float:
        answer = run_module("inspect_classify", way, str(directory))
        entries[way] = answer["entries"]
        return figure(answer, "seconds")

    least = bench.least(lambda: seconds("classify"), lambda: seconds("read"))
    check_same(f"{directory}: entries", entries["classify"], entries["read"])
    yield share_of("classify-10k", least, "reading alone", at_most=3, unit="s")


def _read(path: str) -> int:
    return sum(len(chunk.entries) for chunk in read_chunks(path, salvage=True))


def _classify(path: str) -> int:
    classifier, entries = Classifier(), 0
    for chunk in read_chunks(path, salvage=True):
        classifier.add(chunk.entries)
        entries += len(chunk.entries)
    classifier.finish()
    return entries


def main(way: str, directory: str) -> None:
    """Go through a directory one way, and print what it took as JSON."""
    ask = {"read": _read, "classify": _classify}[way]
    paths = sorted(map(str, Path(directory).glob("*.jsonl")))
    began = time.perf_counter()
    entries = sum(map(ask, paths))
    seconds = time.perf_counter() - began
    print(json.dumps({"entries": entries, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
