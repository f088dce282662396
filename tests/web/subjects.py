"""What pages are made of in tests: real jobs, a ledger that they were brought into."""

import os
from functools import partial
from pathlib import Path

from proctor.exchange.harbor_job import JobOptions, find_jobs, find_trials
from proctor.exchange.intake import seal_offers
from proctor.ledger.api import Ledger

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
SEALED = ("04-binary-scripted-k5", "06-errors-oracle-k1", "14-two-models")


def all_jobs() -> tuple[Path, ...]:
    """Every real job there is."""
    return tuple(find_jobs(JOBS))


def seal_jobs(directory: Path, names: tuple[str, ...] = SEALED) -> Path:
    """A ledger with the trials of some jobs, its index up to date."""
    for name in names:
        found = find_trials(JOBS / name, JobOptions(is_over=True))
        seal_offers(found.offers, partial(Ledger.open_or_create, directory))
    with Ledger.open(directory) as ledger:
        ledger.refresh()
    return directory


def snapshot(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Every file of a tree with its mode, size and time."""
    return {
        os.path.relpath(path, directory): (found.st_mode, found.st_size, found.st_mtime_ns)
        for path in sorted(directory.rglob("*"))
        for found in [path.lstat()]
        if path.is_file() or path.is_symlink()
    }
