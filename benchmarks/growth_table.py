"""`python -m benchmarks.growth_table [SIZE…]`: the figures of docs/assurance/growth.md.

Sizes are numbers of trials; each ledger is made first, indexed, and kept in build/bench-data. Not a
part of `make bench`: a million trials take most of an hour.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bench import ROOT, Bench, cpu_seconds, entry_point, figure, run_module
from benchmarks.growth import proof_seconds, seal_seconds, withhold_seconds
from benchmarks.growth_data import load_growth_ledger
from proctor.ledger.derived import INDEX, SEARCH_INDEX, find_folder, remove_database

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
    remove_database(folder / INDEX)
    built = _command("ledger", "prove", "7", "--json", directory)
    yield "seal and index one trial", f"{1000 * _least(seal_seconds, directory):.2f} ms"
    yield "log", f"{log / _MB:,.0f} MB"
    yield "index", f"{(folder / INDEX).stat().st_size / _MB:,.0f} MB"
    yield "build the index anew", f"{built:.1f} s"
    yield "inclusion proof", f"{1000 * _least(proof_seconds, directory):.2f} ms"
    yield "withhold a trial", f"{1000 * _least(withhold_seconds, directory):.0f} ms"
    board = run_module("ours_board", str(directory))
    yield "board", f"{figure(board, 'seconds'):.1f} s, {figure(board, 'megabytes'):.0f} MB"
    yield "ledger verify --fast", f"{_command('ledger', 'verify', '--fast', directory):.1f} s"
    yield "ledger verify", f"{_command('ledger', 'verify', directory):.1f} s"
    yield "index for search", f"{_command('search', '--update', directory):.1f} s"
    yield "index for search, size", f"{(folder / SEARCH_INDEX).stat().st_size / _MB:,.0f} MB"


def _least(measure: Callable[[Path], float], directory: Path) -> float:
    return min(measure(directory) for _ in range(3))


def _command(*words: str | Path) -> float:
    *asked, directory = map(str, words)
    return cpu_seconds(entry_point("proctor.cli.main", "main", *asked, "--ledger", directory))


if __name__ == "__main__":
    main()
