"""Reading trajectories: beside the bare decoder, and beside a reader of the peer's shape.

The data is some 600 bytes a line. Every way has to come to the same number of entries.
"""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench import Bench, check_same, figure, run_module
from benchmarks.row import Row, share_of, times_faster
from benchmarks.trace_data import load_trace_file, load_trace_files

_BARE = "bare msgspec decode_lines"
_PEER = "json + pydantic, line by line"
_MEGABYTES = 150


def trace_rows(
    bench: Bench, *, megabytes: int = 200, large: int = 1000, small_files: int = 10_000
) -> Iterator[Row]:
    """The rows, each with its bar."""
    one = load_trace_file(bench, megabytes).parent
    yield times_faster("trace-read", _least(bench, one, "ours", "bare"), _BARE, at_least=0.75)
    peer = _least(bench, one, "ours", "peer", rounds=3)
    yield times_faster("trace-read-peer", peer, _PEER, at_least=5)
    huge = load_trace_file(bench, large).parent
    held = figure(run_module("trace_reading", "ours", str(huge)), "megabytes")
    limit = f"the limit, for a file of {large:,} MB"
    yield share_of("trace-1gb-memory", (held, _MEGABYTES), limit, at_most=1, unit="MB")
    many = load_trace_files(bench, small_files, 13_000)[0].parent
    files = _least(bench, many, "ours", "peer", rounds=3)
    yield times_faster("trace-10k-files", files, _PEER, at_least=3)


def _least(
    bench: Bench, directory: Path, ours: str, other: str, *, rounds: int | None = None
) -> tuple[float, float]:
    """Least times of two ways, in turns, of a fresh process each."""
    entries: dict[str, object] = {}

    def seconds(way: str) -> float:
        answer = run_module("trace_reading", way, str(directory))
        entries[way] = answer["entries"]
        return figure(answer, "seconds")

    least = bench.least(lambda: seconds(ours), lambda: seconds(other), rounds=rounds)
    check_same(f"{directory}: entries", entries[ours], entries[other])
    return least
