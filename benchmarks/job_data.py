"""Job directories to measure with.

    <data>/<version>/<tasks>x<attempts>/        the job
    <data>/<version>/<tasks>x<attempts>.json    the digest of its stats, as harbor computed them

Written once, kept from run to run.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bench import Bench, run_module

_VERSION = "jobs-2"
"""Raised when `drawn` or `write_job` write other bytes."""


@dataclass(frozen=True, slots=True)
class JobData:
    """A job directory, and what harbor made of its trials."""

    directory: Path
    digest: str
    """SHA-256 of the stats on one line."""


def load_job_data(bench: Bench, n_tasks: int, n_attempts: int) -> JobData:
    """The job of that size, written now if it is not there."""
    directory = bench.data / _VERSION / f"{n_tasks}x{n_attempts}"
    facts = directory.with_suffix(".json")
    if not facts.exists():
        answer = run_module("write_job", str(directory), str(n_tasks), str(n_attempts))
        facts.write_text(json.dumps(answer), encoding="utf-8")
    return JobData(directory, json.loads(facts.read_text(encoding="utf-8"))["digest"])
