"""A harbor job of thousands of trials brought into a ledger, by the whole command.

The trials are drawn from the real jobs of the tests, each under a name of its own, so that hardly
any file is one of another trial. Beside it a bare process reads, hashes, writes and syncs the same
files, which is the least that keeps them.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.bench import ROOT, Bench, BenchmarkError, command_seconds, entry_point
from benchmarks.row import Row, share_of
from benchmarks.sizes import name_of_size
from proctor.ledger.keys import make_key
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.trial_index import TrialFilter

_JOBS = ROOT / "tests" / "data" / "harbor" / "jobs"
_TRIALS = 2000
_ROUNDS = 3


def import_rows(bench: Bench, *, trials: int = _TRIALS) -> Iterator[Row]:
    """Importing, beside keeping the files bare."""
    job = load_job_to_import(bench, trials)
    with tempfile.TemporaryDirectory(dir=bench.data) as scratch:
        place = Path(scratch)
        make_key(place / "key", "bench")
        figures = bench.least(
            lambda: _import_seconds(place, job, trials),
            lambda: _bare_seconds(place, job),
            rounds=_ROUNDS,
        )
    name = f"import-harbor-{name_of_size(trials)}" if trials != _TRIALS else "import-harbor"
    yield share_of(name, figures, "read, hash, write, fsync the files", at_most=4)


def _import_seconds(place: Path, job: Path, trials: int) -> float:
    # Nothing is deleted between two figures: a disk that has just lost many files takes long to
    # make others, and whoever comes next would pay for it.
    ledger = Path(tempfile.mkdtemp(dir=place)) / "ledger"
    where = ("--ledger", str(ledger), "--key", str(place / "key"))
    words = ("import", "harbor", str(job), *where)
    seconds = command_seconds(entry_point("proctor.cli.main", "main", *words))
    with OpenLedger.open(ledger) as opened:
        opened.refresh()
        found = len(list_trials(opened, TrialFilter()))
    if found != trials:
        raise BenchmarkError(f"{ledger}: {found} trials were sealed; expected {trials}")
    return seconds


def _bare_seconds(place: Path, job: Path) -> float:
    target = Path(tempfile.mkdtemp(dir=place)) / "bare"
    return command_seconds(entry_point("benchmarks.floor_files", "main", str(job), str(target)))


def load_job_to_import(bench: Bench, trials: int) -> Path:
    """A job of so many trials; it is kept from run to run."""

    def fill(directory: Path) -> None:
        job = directory / f"job-{trials}"
        real = sorted(path.parent for path in _JOBS.glob("*/*/result.json"))
        for number in range(trials):
            _copy_trial(real[number % len(real)], job, number)
        planned = _load(real[0].parent / "lock.json")
        planned["trials"] = [planned["trials"][n % len(planned["trials"])] for n in range(trials)]
        (job / "lock.json").write_text(json.dumps(planned), encoding="utf-8")
        shutil.copy(real[0].parent / "config.json", job)
        result = _load(real[0].parent / "result.json") | {"n_total_trials": trials}
        (job / "result.json").write_text(json.dumps(result), encoding="utf-8")

    return bench.kept(f"harbor-import-2-{trials}", fill) / f"job-{trials}"


def _load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _copy_trial(real: Path, job: Path, number: int) -> None:
    name = f"{real.name}{number:06}"
    shutil.copytree(real, job / name)
    for file in ("result.json", "config.json", "trial.log", "verifier/test-stdout.txt"):
        path = job / name / file
        if path.exists():
            text = path.read_text(encoding="utf-8").replace(real.name, name)
            text = text if file.endswith(".json") else f"{text}{name}\n"
            path.write_text(text, encoding="utf-8")
    trace = job / name / "agent" / "trajectory.json"
    if trace.exists():
        trace.write_text(json.dumps(_load(trace) | {"session_id": name}), encoding="utf-8")
