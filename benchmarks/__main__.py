"""`python -m benchmarks [NAME…]`: run the subjects, print the table, write build/bench.json.

A NAME is a subject (`load`) or one of its rows (`load-10k`), for which the whole subject is run.
Exits with 1 when a bar is missed, with 2 when a name is not known or a measurement fails.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.bench import ROOT, Bench, BenchmarkError
from benchmarks.subjects import SUBJECTS, Subject
from benchmarks.table import render_heading, render_json, render_row


def main(
    names: Sequence[str],
    subjects: Mapping[str, Subject] = SUBJECTS,
    build: Path = ROOT / "build",
    rounds: int = 5,
) -> int:
    """Run the named subjects, or all; the exit code."""
    build.mkdir(parents=True, exist_ok=True)
    bench = Bench(build / "bench-data", rounds)
    rows = []
    try:
        chosen = choose(names, subjects)
        print(render_heading())
        for name in chosen:
            for row in subjects[name](bench):
                print(render_row(row), flush=True)
                rows.append(row)
    except BenchmarkError as error:
        print(error, file=sys.stderr)
        return 2
    (build / "bench.json").write_text(render_json(rows), encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


def choose(names: Sequence[str], subjects: Mapping[str, Subject]) -> list[str]:
    """The subjects that these names ask for, in the order of the table.

    Raises:
        BenchmarkError: a name asks for none.
    """
    asked = {name: [subject for subject in subjects if name.startswith(subject)] for name in names}
    for name, found in asked.items():
        if not found:
            known = ", ".join(subjects)
            raise BenchmarkError(f"{name}: no such benchmark; expected one of {known}")
    wanted = {subject for found in asked.values() for subject in found}
    return [subject for subject in subjects if subject in wanted or not names]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
