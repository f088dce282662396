"""Small job directories, written for one test each."""

from pathlib import Path
from typing import Any

from proctor.harbor.documents import TrialDocument
from proctor.harbor.stats import Trial
from proctor.harbor.trial import Basis, FoundTrial
from proctor.reward.steps import Verdict
from tests.audit.directories import write_json


def trial_result(name: str, **changes: Any) -> dict[str, Any]:
    """A trial's result.json as plain values: verified, reward 1.0, no exception."""
    task = name.rpartition("__")[0] or name
    return {
        "task_name": task,
        "trial_name": name,
        "source": "ds",
        "config": {"task": {"path": f"tasks/{task}"}, "agent": {"name": "ag"}},
        "agent_info": {"name": "ag", "version": "1.0", "model_info": None},
        "agent_result": None,
        "verifier_result": {"rewards": {"reward": 1.0}},
        "exception_info": None,
        "started_at": "2025-01-02T03:04:05.000001Z",
        "finished_at": "2025-01-02T03:05:05.000001Z",
        "step_results": None,
    } | changes


def failed(kind: str) -> dict[str, str]:
    """An `exception_info`."""
    return {"exception_type": kind, "exception_message": ""}


def rewarded(**rewards: Any) -> dict[str, Any]:
    """A `verifier_result`."""
    return {"rewards": rewards}


def write_trial(job: Path, name: str, files: dict[str, str] | None = None, **changes: Any) -> Path:
    """A trial directory; without files its verifier left reward.txt with 1."""
    directory = job / name
    directory.mkdir(parents=True)
    write_json(directory / "result.json", trial_result(name, **changes))
    (directory / "config.json").write_text("{}")
    write_rewards(directory, {"reward.txt": "1"} if files is None else files)
    return directory


def write_rewards(directory: Path, files: dict[str, str]) -> None:
    """The verifier directory of a trial or step."""
    verifier = directory / "verifier"
    verifier.mkdir(parents=True)
    for name, text in files.items():
        (verifier / name).write_text(text)


def write_result(job: Path, evals: dict[str, Any], **changes: Any) -> None:
    """A finished job's result.json."""
    stats = {"n_completed_trials": 2, "n_retries": 0, "evals": evals}
    document = {"n_total_trials": 2, "finished_at": "2025-01-02T03:05:06", "stats": stats}
    write_json(job / "result.json", document | changes)


def write_lock(job: Path, tasks: list[str]) -> None:
    trials = [{"task": {"path": f"tasks/{task}"}, "agent": {"name": "ag"}} for task in tasks]
    write_json(job / "lock.json", {"trials": trials})


def found_trial(name: str, document: TrialDocument) -> FoundTrial:
    """A trial as it was found, without a directory."""
    trial = Trial(name, document.task_name, "ag", verdict=Verdict({"reward": 1.0}))
    return FoundTrial(name, document, trial, Basis.REWARD_FILE, None)
