"""Attempts made up for tests of what is counted."""

from typing import Any

from proctor.ledger.row import TrialRow
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.runs import Run


def make_attempt(task: str = "t", reward: float | None = 1.0, **changes: Any) -> TrialRow:
    """One attempt at a task, as it would be in a ledger."""
    found: dict[str, Any] = {
        "experiment_id": "e", "trial_id": f"{task}__1", "record": "0" * 64, "status": "sealed",
        "seq": 1, "recorded_dataset": "d", "task_id": task, "agent": "agent", "revision": "1",
        "model": "m",
        "configuration": "c" * 12, "run_conditions": RunConditions(backend="docker", profile="p"),
        "task_conditions": TaskConditions(revision=f"r-{task}", image="i@sha256:0"),
        "reward": reward, "reason_code": None if reward is not None else "harbor_reward_missing",
        "completeness": "complete", "source": None, "timestamp": "2026-01-01T00:00:00Z",
        "cost_usd": 0.5, "tokens_in": 100, "tokens_out": 10, "advisor_calls": None,
        "seconds": 3.0, "findings": (),
    }  # fmt: skip
    return TrialRow(**{**found, **changes})


def make_run(name: str, rewards: dict[str, list[float | None]], **changes: Any) -> Run:
    """A run of some tasks, with the rewards of the attempts at each."""
    attempts = [
        make_attempt(task, reward, experiment_id=name, trial_id=f"{task}__{at}", **changes)
        for task, found in rewards.items()
        for at, reward in enumerate(found)
    ]
    return Run(name=name, is_sealed=True, trials=tuple(attempts))
