"""Harbor loads a job as its uploader does, and computes its stats; prints how many trials it has.

    python -m benchmarks.theirs_uploader load JOB

Harbor's one function that loads a whole job: the job's result and configuration and every trial
result, as `proctor score` does, which also reads the lock and the reward files.
"""

import json
import sys
from pathlib import Path

from harbor.upload.uploader import _load_job_from_disk

from benchmarks.theirs import final_stats


def load(job: Path) -> dict[str, object]:
    """Load a job directory and assemble its stats, once."""
    _, _, trials, _ = _load_job_from_disk(job)
    return {"trials": final_stats(trials).n_completed_trials}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["load", job]:
            print(json.dumps(load(Path(job))))
        case _:
            sys.exit(__doc__)
