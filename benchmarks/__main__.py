"""`python -m benchmarks [NAME…]`: run the subjects, print the table, write build/bench.json.

A NAME is a subject (`load`) or one of its rows (`load-10k`), for which the whole subject is run.
The file is written anew after each row. A subject that fails is a row that says why, and the others
go on. Exits with 1 when a bar is missed or something could not be measured, with 2 when a name is
not known, with 130 when interrupted.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.bench import ROOT, Bench, BenchmarkError
from benchmarks.row import NotMeasured, Row
from benchmarks.subjects import SUBJECTS, Subject
from benchmarks.table import render_heading, render_json, render_row


def main(
    names: Sequence[str],
    subjects: Mapping[str, Subject] = SUBJECTS,
    build: Path = ROOT / "build",
    rounds: int = 5,
) -> int:
    """Run the named subjects, or all; the exit code."""
    unknown = [name for name in names if not any(map(name.startswith, subjects))]
    if unknown:
        known = ", ".join(subjects)
        print(f"{unknown[0]}: no such benchmark; expected one of {known}", file=sys.stderr)
        return 2
    bench = Bench(build / "bench-data", rounds)
    bench.data.mkdir(parents=True, exist_ok=True)
    rows: list[Row | NotMeasured] = []
    print(render_heading())
    try:
        # Written before the first row too: an old file would be taken for this run's.
        _write(build, rows)
        for name in choose(names, subjects):
            for row in measure(name, subjects[name], bench):
                print(render_row(row), flush=True)
                rows.append(row)
                _write(build, rows)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0 if all(row.holds for row in rows) else 1


def choose(names: Sequence[str], subjects: Mapping[str, Subject]) -> list[str]:
    """The subjects that these names ask for, in the order of the table; all without a name."""
    wanted = {
        # `run-sandbox` is a subject of its own, and none of `run`.
        max(filter(name.startswith, subjects), key=len, default=None)
        for name in names
    }
    return [subject for subject in subjects if not names or subject in wanted]


def measure(name: str, subject: Subject, bench: Bench) -> Iterator[Row | NotMeasured]:
    """The rows of a subject; where it fails, a last one that says why."""
    last = None
    try:
        for row in subject(bench):
            last = row.name
            yield row
    # Whatever it is, the other subjects do not depend on it.
    except Exception as error:  # noqa: BLE001
        kind = "" if isinstance(error, BenchmarkError) else f"{type(error).__name__}: "
        reason = f"{kind}{error}"
        yield NotMeasured(name, f"the rows after {last}: {reason}" if last else reason)


def _write(build: Path, rows: Sequence[Row | NotMeasured]) -> None:
    unfinished = build / "bench.json.unfinished"
    unfinished.write_text(render_json(rows), encoding="utf-8")
    unfinished.replace(build / "bench.json")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
