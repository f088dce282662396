"""What proctor is asked to do, in a process of its own; prints what it took as one JSON object.

    python -m benchmarks.ours assemble TASKS ATTEMPTS TIMES
    python -m benchmarks.ours load JOB
    python -m benchmarks.ours audit JOB

Loading reads every reward file and compares it with what the trial result claims.
"""

import gc
import hashlib
import json
import sys
import time

from benchmarks.bench import peak_megabytes
from benchmarks.drawn import AGENT, DATASET, MODEL, NEVER_STARTED, DrawnTrial, draw_trials
from proctor.audit.job import audit_job
from proctor.audit.scoring import score_jobs
from proctor.harbor.job import load_job
from proctor.harbor.render import render_json
from proctor.harbor.stats import (
    NO_USAGE,
    JobStats,
    Trial,
    TrialTable,
    Usage,
    assemble_final,
    builtin_metrics,
    stats_document,
)
from proctor.reward.profile import DEFAULT_PROFILE
from proctor.reward.steps import Verdict


def trial_of(drawn: DrawnTrial) -> Trial:
    """A trial as proctor holds it after loading."""
    started = drawn.exception != NEVER_STARTED
    counts = (drawn.n_input_tokens, drawn.n_cache_tokens, drawn.n_output_tokens)
    return Trial(
        name=drawn.name,
        task=drawn.task,
        agent=AGENT,
        model=MODEL,
        source=DATASET,
        verdict=Verdict({"reward": drawn.reward}) if drawn.reward is not None else None,
        exception=drawn.exception,
        usage=Usage(*counts, drawn.cost_usd) if started else NO_USAGE,
    )


def digest_of(stats: JobStats) -> str:
    """SHA-256 of the stats as harbor's result.json would have them, on one line."""
    return hashlib.sha256(render_json(stats_document(stats)).encode()).hexdigest()


def assemble(n_tasks: int, n_attempts: int, times: int) -> dict[str, object]:
    """Assemble the stats of trials in memory several times; the least time of it."""
    table = TrialTable(map(trial_of, draw_trials(n_tasks, n_attempts)))
    metrics = {DATASET: builtin_metrics(["mean"])}
    least = float("inf")
    digest = ""
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        stats = assemble_final(table, metrics)
        stats.count_progress(table.n_trials)
        least = min(least, time.perf_counter() - start)
        digest = digest_of(stats)
    return {"seconds": least, "digest": digest}


def load(directory: str) -> dict[str, object]:
    """Load a job directory, check every claimed reward and assemble the stats, once."""
    start = time.perf_counter()
    job = load_job(directory, DEFAULT_PROFILE)
    scoring = score_jobs([job], DEFAULT_PROFILE)
    followed = sum(found.follows for found in job.trials)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "megabytes": peak_megabytes(),
        "trials": followed,
        "digest": digest_of(scoring.stats),
    }


def audit(directory: str) -> dict[str, object]:
    """Audit a job directory, once."""
    start = time.perf_counter()
    found = audit_job(directory)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "trials": len(found.job.trials), "follows": found.follows}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["assemble", *sizes]:
            print(json.dumps(assemble(*map(int, sizes))))
        case ["load", job]:
            print(json.dumps(load(job)))
        case ["audit", job]:
            print(json.dumps(audit(job)))
        case _:
            sys.exit(__doc__)
