"""Write a job directory of drawn trials, every file of it by harbor's own models.

    python -m benchmarks.write_job DIRECTORY TASKS ATTEMPTS

    <directory>/
      result.json config.json lock.json      as at the end of a job
      <trial>/result.json config.json        a directory a trial
      <trial>/verifier/reward.txt            where the verifier ran
      <trial>/exception.txt                  where an exception was recorded

Prints the digest of the stats on one line. The directory gets its name when it is complete.
"""

import hashlib
import json
import shutil
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from harbor.models.job.config import DatasetConfig, JobConfig
from harbor.models.job.lock import HarborLockInfo, JobLock, TaskLock, TrialLock
from harbor.models.job.result import JobResult
from harbor.models.trial.config import AgentConfig

from benchmarks.drawn import AGENT, DATASET, MODEL, PROVIDER, draw_trials
from benchmarks.theirs import JOB_ID, check_constructed, config_of, final_stats, result_of


def write_job(directory: Path, n_tasks: int, n_attempts: int) -> str:
    """Write the job; the digest of its stats."""
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    # Either is left by a run that was interrupted.
    for left in (unfinished, directory):
        shutil.rmtree(left, ignore_errors=True)
    unfinished.mkdir(parents=True)
    trials = []
    for drawn in draw_trials(n_tasks, n_attempts):
        trial = result_of(drawn, config_of(drawn.task, drawn.name))
        _write_trial(unfinished / drawn.name, trial)
        trials.append(trial)
    check_constructed(trials[0])
    config = _config_of(directory.name, n_attempts)
    _write(unfinished / "config.json", config.model_dump_json(indent=4))
    lock = _lock_of(config, trials)
    _write(unfinished / "lock.json", lock.model_dump_json(indent=4, exclude_none=True))
    result = _result_of(trials)
    exclude = {"trial_results"}
    _write(unfinished / "result.json", result.model_dump_json(indent=4, exclude=exclude))
    unfinished.rename(directory)
    return hashlib.sha256(result.stats.model_dump_json().encode()).hexdigest()


def _config_of(job_name: str, n_attempts: int) -> Any:
    return JobConfig(
        job_name=job_name,
        n_attempts=n_attempts,
        agents=[AgentConfig(name=AGENT, model_name=f"{PROVIDER}/{MODEL}")],
        datasets=[DatasetConfig(path=Path("tasks") / DATASET)],
    )


def _lock_of(config: Any, trials: list[Any]) -> Any:
    return JobLock(
        created_at=trials[0].started_at,
        harbor=HarborLockInfo(version="0.13.1", is_editable=False),
        invocation=["harbor", "run"],
        n_concurrent_trials=config.n_concurrent_trials,
        retry=config.retry,
        trials=[_planned(trial) for trial in trials],
    )


def _planned(trial: Any) -> Any:
    return TrialLock(
        task=TaskLock(
            name=trial.task_name,
            type="local",
            digest=f"sha256:{trial.task_checksum}",
            source=DATASET,
            path=trial.config.task.path,
        ),
        agent=trial.config.agent,
        environment=trial.config.environment,
        verifier=trial.config.verifier,
    )


def _result_of(trials: list[Any]) -> Any:
    first, last = (trial.started_at.replace(tzinfo=None) for trial in (trials[0], trials[-1]))
    finished = last + timedelta(hours=1)
    return JobResult(
        id=JOB_ID,
        started_at=first,
        updated_at=finished,
        finished_at=finished,
        n_total_trials=len(trials),
        stats=final_stats(trials),
    )


def _write_trial(directory: Path, trial: Any) -> None:
    directory.mkdir()
    _write(directory / "result.json", trial.model_dump_json(indent=4))
    _write(directory / "config.json", trial.config.model_dump_json(indent=4))
    if trial.exception_info is not None:
        _write(directory / "exception.txt", trial.exception_info.exception_traceback)
    if trial.verifier_result is not None:
        verifier = directory / "verifier"
        verifier.mkdir()
        _write(verifier / "test-stdout.txt", "1 passed in 0.10s\n")
        _write(verifier / "reward.txt", f"{trial.verifier_result.rewards['reward']:g}\n")


_write = partial(Path.write_text, encoding="utf-8")


if __name__ == "__main__":
    directory, n_tasks, n_attempts = sys.argv[1:]
    print(json.dumps({"digest": write_job(Path(directory), int(n_tasks), int(n_attempts))}))
