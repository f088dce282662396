"""Job directories as the real harbor writes them: its models, its reading of rewards, its result.

A case is JSON. Each of its trials has the files a verifier left and a word for how it ended:

    ok, agent-timeout, nonzero-exit   verified; the last two with an exception beside the rewards
    verifier-timeout, cancelled       files are left that do not count
    disabled                          no verification was asked for
    custom                            a verifier of the user's own, which leaves no files
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.conformance.ours import Case
from tests.conformance.theirs import harbor_module, verify
from tests.harbor.harbor_jobs import exception_info, given_job, verifier_result
from tests.harbor.job_cases import FIXED

START = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)

EXCEPTIONS = {
    "agent-timeout": "AgentTimeoutError",
    "nonzero-exit": "NonZeroAgentExitCodeError",
    "verifier-timeout": "VerifierTimeoutError",
    "cancelled": "CancelledError",
}
UNVERIFIED = ("verifier-timeout", "cancelled", "disabled")


def write_job(directory: Path, case: Case) -> str:
    """Lay the job out on disk; returns `stats` as harbor's result.json has it, compact."""
    results = [
        write_trial(directory / trial["trial_name"], at, trial, case)
        for at, trial in enumerate(case["trials"])
    ]
    job = given_job()(_as_added_up(results, case), _given(case))
    if case["n_running_trials"] is None:
        job.finish()
    else:
        job.break_off(case["n_running_trials"])
        job._job_result.finished_at = None
    (directory / "config.json").write_text(_job_config(case).model_dump_json(indent=4))
    lock = _job_lock(results).model_dump_json(indent=4, exclude_none=True)
    (directory / "lock.json").write_text(lock)
    result = job._job_result.model_dump_json(indent=4, exclude={"trial_results"})
    (directory / "result.json").write_text(result)
    return str(job._job_result.stats.model_dump_json())


def _as_added_up(results: list[Any], case: Case) -> list[Any]:
    """By plan when the job ended, else as the trials ended."""
    if case["n_running_trials"] is None:
        return results
    return sorted(results, key=lambda result: result.finished_at)


def _given(case: Case) -> Case:
    datasets = {"adhoc", *(trial["source"] for trial in case["trials"] if trial["source"])}
    return {
        "n_total_trials": len(case["trials"]) + (case["n_running_trials"] or 0),
        "metrics_by_dataset": {name: case["metrics"] or ["mean"] for name in datasets},
    }


def write_trial(directory: Path, at: int, case: Case, job: Case) -> Any:
    """One trial directory; returns the TrialResult that harbor would hold in memory."""
    directory.mkdir(parents=True)
    module = harbor_module("harbor.models.trial.result")
    config = _trial_config(case, job)
    result = module.TrialResult(
        id=UUID(int=at),
        task_name=case["task_name"],
        trial_name=case["trial_name"],
        trial_uri=directory.as_uri(),
        task_id=config.task.get_task_id(),
        source=case["source"],
        task_checksum="0" * 64,
        config=config,
        agent_info=_agent_info(case),
        agent_result=case["agent_result"],
        exception_info=exception_info(EXCEPTIONS.get(case["ending"])),
        started_at=START + timedelta(seconds=at * 0.5),
        finished_at=START + timedelta(seconds=100 + case["ended"]),
    )
    if case["steps"] is None:
        _verify_single(directory, case, result)
    else:
        _verify_steps(directory, case, result)
    (directory / "config.json").write_text(config.model_dump_json(indent=4))
    (directory / "result.json").write_text(result.model_dump_json(indent=4))
    return result


def _verify_single(directory: Path, case: Case, result: Any) -> None:
    if case["ending"] == "custom":
        result.verifier_result = verifier_result({"reward": 0.25, "own": 1})
        return
    left, error = _verified(directory, case["files"])
    if case["ending"] in UNVERIFIED:
        return
    result.verifier_result = left
    result.exception_info = result.exception_info or error


def _verified(directory: Path, files: dict[str, str]) -> tuple[Any, Any]:
    """What harbor's verifier reads from these files: a result or an exception."""
    (directory / "verifier").mkdir(parents=True)
    for name, text in files.items():
        (directory / "verifier" / name).write_text(text)
    try:
        return verify(directory), None
    except Exception as error:  # noqa: BLE001 - harbor records whatever is raised here
        return None, exception_info(type(error).__name__)


def _verify_steps(directory: Path, case: Case, result: Any) -> None:
    step_result = harbor_module("harbor.models.trial.result").StepResult
    result.agent_result, result.step_results = None, []
    for step in case["steps"]:
        left, error = _verified(directory / "steps" / step["name"], step["files"])
        if case["ending"] == "disabled" or step["ending"] in UNVERIFIED:
            left, error = None, None
        error = exception_info(EXCEPTIONS.get(step["ending"])) or error
        ended = step_result(
            step_name=step["name"],
            agent_result=step["agent_result"],
            verifier_result=left,
            exception_info=error,
        )
        result.step_results.append(ended)
        if error and not left:
            break
    if case["ending"] not in ("verifier-timeout", "cancelled"):
        result.verifier_result = _selected(result, case["strategy"])


def _selected(result: Any, strategy: str) -> Any:
    """The rewards of the whole trial, by harbor's own rule."""
    config = harbor_module("harbor.models.task.config")
    chosen = config.MultiStepRewardStrategy(strategy)
    trial = object.__new__(harbor_module("harbor.trial.multi_step").MultiStepTrial)
    trial.__dict__["_result"] = result
    trial.__dict__["task"] = SimpleNamespace(
        config=SimpleNamespace(multi_step_reward_strategy=chosen)
    )
    return trial._select_multi_step_reward()


def _trial_config(case: Case, job: Case) -> Any:
    module = harbor_module("harbor.models.trial.config")
    own = "verifiers:Own" if case["ending"] == "custom" else None
    return module.TrialConfig(
        task=module.TaskConfig(
            path=Path("tasks", case["source"] or "", case["task_name"]), source=case["source"]
        ),
        trial_name=case["trial_name"],
        trials_dir=Path("jobs", job["job_name"]),
        agent=module.AgentConfig(name=case["agent"], model_name=case["model"]),
        verifier=module.VerifierConfig(disable=case["ending"] == "disabled", import_path=own),
        job_id=UUID(FIXED["id"]),
    )


def _agent_info(case: Case) -> Any:
    module = harbor_module("harbor.models.trial.result")
    provider, slash, name = (case["model"] or "").partition("/")
    model = module.ModelInfo(name=name, provider=provider) if slash else None
    return module.AgentInfo(name=case["agent"], version="1.0", model_info=model)


def _job_config(case: Case) -> Any:
    module = harbor_module("harbor.models.job.config")
    sources = {trial["source"]: None for trial in case["trials"] if trial["source"]}
    return module.JobConfig(
        job_name=case["job_name"],
        metrics=[{"type": name} for name in case["metrics"]],
        datasets=[{"path": f"tasks/{source}"} for source in sources],
    )


def _job_lock(results: list[Any]) -> Any:
    module = harbor_module("harbor.models.job.lock")
    trials = [
        module.TrialLock(
            task=module.TaskLock(
                name=result.task_name,
                type="local",
                digest="sha256:" + "0" * 64,
                source=result.source,
                path=result.config.task.path,
            ),
            agent=result.config.agent,
            environment=result.config.environment,
            verifier=result.config.verifier,
        )
        for result in results
    ]
    retry = harbor_module("harbor.models.job.config").RetryConfig()
    return module.JobLock(n_concurrent_trials=4, retry=retry, trials=trials)
