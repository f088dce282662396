"""What harbor is asked to do, in a process of its own; prints what it took as one JSON object.

    python -m benchmarks.theirs assemble TASKS ATTEMPTS TIMES

Harbor has no function that goes from trials to a finished job's stats: `final_stats` does what the
end of `harbor.job.Job.run` does. Loading is in `theirs_viewer` and `theirs_uploader`.
"""

import gc
import hashlib
import json
import sys
import time
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from harbor.metrics.mean import Mean
from harbor.models.agent.context import AgentContext
from harbor.models.job.result import JobStats
from harbor.models.task.id import LocalTaskId
from harbor.models.trial.config import (
    AgentConfig,
    EnvironmentConfig,
    TaskConfig,
    TrialConfig,
    VerifierConfig,
)
from harbor.models.trial.result import AgentInfo, ExceptionInfo, ModelInfo, TimingInfo, TrialResult
from harbor.models.verifier.result import VerifierResult
from harbor.utils.pass_at_k import compute_pass_at_k_by_evals

from benchmarks.bench import BenchmarkError
from benchmarks.drawn import (
    AGENT,
    AGENT_VERSION,
    DATASET,
    MODEL,
    NEVER_STARTED,
    PROVIDER,
    DrawnTrial,
    draw_trials,
)

JOB_ID = UUID("7d4d7c2e-6f3b-4d1e-9d55-0f6a3c1b2a99")
TRIALS_DIR = Path("jobs/bench")

_TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/app/harbor/trial/single_step.py", line 71, in run\n'
    "    await self._run()\n"
)


def config_of(task: str, trial_name: str) -> Any:
    """The configuration of one trial, validated."""
    return TrialConfig(
        task=TaskConfig(path=Path("tasks") / DATASET / task, source=DATASET),
        trial_name=trial_name,
        trials_dir=TRIALS_DIR,
        agent=AgentConfig(name=AGENT, model_name=f"{PROVIDER}/{MODEL}"),
        environment=EnvironmentConfig(),
        verifier=VerifierConfig(),
        job_id=JOB_ID,
    )


def result_of(drawn: DrawnTrial, config: Any) -> Any:
    """A trial as harbor holds it after loading, built without validation to save time."""
    started = drawn.exception != NEVER_STARTED
    return TrialResult.model_construct(
        id=drawn.id,
        task_name=drawn.task,
        trial_name=drawn.name,
        trial_uri=f"file:///bench/{TRIALS_DIR}/{drawn.name}",
        task_id=LocalTaskId.model_construct(path=config.task.path),
        source=DATASET,
        task_checksum=hashlib.sha256(drawn.task.encode()).hexdigest(),
        config=config,
        agent_info=AgentInfo.model_construct(
            name=AGENT,
            version=AGENT_VERSION,
            model_info=ModelInfo.model_construct(name=MODEL, provider=PROVIDER),
        ),
        agent_result=_usage_of(drawn) if started else None,
        verifier_result=_verdict_of(drawn),
        exception_info=_exception_of(drawn),
        started_at=drawn.started,
        finished_at=drawn.started + timedelta(seconds=600),
        environment_setup=_timing(drawn, 0, 30),
        agent_setup=_timing(drawn, 30, 45) if started else None,
        agent_execution=_timing(drawn, 45, 560) if started else None,
        verifier=_timing(drawn, 560, 595) if started else None,
        step_results=None,
    )


def _usage_of(drawn: DrawnTrial) -> Any:
    return AgentContext.model_construct(
        n_input_tokens=drawn.n_input_tokens,
        n_cache_tokens=drawn.n_cache_tokens,
        n_output_tokens=drawn.n_output_tokens,
        cost_usd=drawn.cost_usd,
        rollout_details=None,
        metadata=None,
    )


def _verdict_of(drawn: DrawnTrial) -> Any:
    if drawn.reward is None:
        return None
    return VerifierResult.model_construct(rewards={"reward": drawn.reward})


def _exception_of(drawn: DrawnTrial) -> Any:
    if drawn.exception is None:
        return None
    message = f"{drawn.exception} after 600.0 seconds"
    return ExceptionInfo.model_construct(
        exception_type=drawn.exception,
        exception_message=message,
        exception_traceback=f"{_TRACEBACK}harbor.trial.errors.{drawn.exception}: {message}\n",
        occurred_at=drawn.started.replace(tzinfo=None) + timedelta(seconds=560),
    )


def _timing(drawn: DrawnTrial, first: int, last: int) -> Any:
    return TimingInfo.model_construct(
        started_at=drawn.started + timedelta(seconds=first),
        finished_at=drawn.started + timedelta(seconds=last),
    )


def check_constructed(trial: Any) -> None:
    """Refuse trials that differ from what validation would have made of them.

    Raises:
        BenchmarkError: they do.
    """
    if TrialResult.model_validate_json(trial.model_dump_json()) != trial:
        raise BenchmarkError(f"{trial.trial_name}: built otherwise than harbor would load it")


def final_stats(trials: list[Any]) -> Any:
    """The stats of a finished job, as the end of `harbor.job.Job.run` computes them."""
    rewards = defaultdict(list)
    for trial in trials:
        info = trial.agent_info
        model = info.model_info.name if info.model_info else None
        key = JobStats.format_agent_evals_key(info.name, model, trial.source or "adhoc")
        verdict = trial.verifier_result
        rewards[key].append(verdict.rewards if verdict is not None else None)
    stats = JobStats.from_trial_results(trials, n_total_trials=len(trials), n_retries=0)
    for key, group in rewards.items():
        stats.evals[key].metrics.append(Mean().compute(group))
    for key, pass_at_k in compute_pass_at_k_by_evals(trials).items():
        stats.evals[key].pass_at_k = pass_at_k
    return stats


def assemble(n_tasks: int, n_attempts: int, times: int) -> dict[str, object]:
    """Assemble the stats of trials in memory several times; the least time of it."""
    configs: dict[str, Any] = {}
    trials = []
    for drawn in draw_trials(n_tasks, n_attempts):
        # One configuration a task, where loading gives one a trial: assembly never looks at it, and
        # the garbage collector has less to walk through.
        config = configs.setdefault(drawn.task, config_of(drawn.task, drawn.name))
        trials.append(result_of(drawn, config))
    check_constructed(trials[0])
    least = float("inf")
    text = ""
    for _ in range(times):
        gc.collect()
        start = time.perf_counter()
        stats = final_stats(trials)
        least = min(least, time.perf_counter() - start)
        text = stats.model_dump_json()
    return {"seconds": least, "digest": hashlib.sha256(text.encode()).hexdigest()}


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["assemble", *sizes]:
            print(json.dumps(assemble(*map(int, sizes))))
        case _:
            sys.exit(__doc__)
