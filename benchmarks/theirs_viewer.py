"""Harbor loads a job as its viewer does, and computes its stats; prints what it took as JSON.

    python -m benchmarks.theirs_viewer load JOB

The fastest and lightest of harbor's loaders: only the trial results, no file of the job as a whole,
no reward file, no order of a plan. Resuming a job reads every trial's config.json besides.
"""

import json
import sys
import time
from pathlib import Path

from harbor.viewer.scanner import JobScanner

from benchmarks.bench import peak_megabytes
from benchmarks.theirs import final_stats


def load(job: Path) -> dict[str, object]:
    """Load a job directory and assemble its stats, once."""
    start = time.perf_counter()
    scanner = JobScanner(job.parent)
    trials = [scanner.get_trial_result(job.name, name) for name in scanner.list_trials(job.name)]
    stats = final_stats(trials)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "megabytes": peak_megabytes(), "trials": stats.n_completed_trials}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", job]:
            print(json.dumps(load(Path(job))))
        case _:
            sys.exit(__doc__)
