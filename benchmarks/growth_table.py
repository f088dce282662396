"""`python -m benchmarks.growth_table [SIZE…]`: the table of docs/growth.md, in processor time.

Sizes are numbers of trials; each ledger is made first, indexed, and kept in build/bench-data. Not a
part of `make bench`: a million trials take most of an hour.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench import ROOT, Bench, cpu_seconds, entry_point, figure, run_module
from benchmarks.growth import proof_seconds, withhold_seconds
from benchmarks.growth_data import load_growth_ledger
from proctor.ledger.derived import INDEX, SEARCH_INDEX, find_folder

_MB = 1_000_000


def main() -> None:
    """Print a line for each figure."""
    for trials in map(int, sys.argv[1:] or ["10000", "100000", "1000000"]):
        directory = load_growth_ledger(Bench(ROOT / "build" / "bench-data"), trials)
        for what, value in _measure(directory):
            print(f"{trials:>9,}  {what:32}{value}", flush=True)


def _measure(directory: Path) -> Iterator[tuple[str, str]]:
    folder = find_folder(directory) or Path()
    log = sum(path.stat().st_size for path in (directory / "entries").iterdir())
    yield "log", f"{log / _MB:,.0f} MB"
    yield "index built or opened", f"{_command('ledger', 'prove', '7', '--json', directory):.1f} s"
    yield "index", f"{(folder / INDEX).stat().st_size / _MB:,.0f} MB"
    yield "inclusion proof", f"{1000 * min(proof_seconds(directory) for _ in range(3)):.2f} ms"
    yield "withhold", f"{1000 * min(withhold_seconds(directory) for _ in range(3)):.0f} ms"
    board = run_module("ours_board", str(directory))
    yield "board", f"{figure(board, 'seconds'):.1f} s, {figure(board, 'megabytes'):.0f} MB"
    yield "verify --fast", f"{_command('ledger', 'verify', '--fast', directory):.1f} s"
    yield "search index", f"{_command('search', '--update', directory):.1f} s"
    yield "search index, size", f"{(folder / SEARCH_INDEX).stat().st_size / _MB:,.0f} MB"
    yield "verify", f"{_command('ledger', 'verify', directory):.1f} s"


def _command(*words: str | Path) -> float:
    *asked, directory = map(str, words)
    return cpu_seconds(entry_point("proctor.cli.main", "main", *asked, "--ledger", directory))


if __name__ == "__main__":
    main()
