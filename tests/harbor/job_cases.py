"""What proctor makes of a job_stats vector's `input`, as a fact.

    ops             trials come and go: increment, remove, update, progress
    final_assembly  trials to the stats of a finished job, and its whole result.json
    live            trials to the stats of a job that still runs; in no vector yet, but in the fuzz

A trial with `shared_nan` has the nan that reward.json's NaN is: one object for all trials.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from proctor.harbor.render import render_json
from proctor.harbor.stats import (
    NO_USAGE,
    JobResult,
    JobStats,
    Metric,
    Trial,
    TrialTable,
    Usage,
    assemble_final,
    assemble_live,
    builtin_metrics,
    count_trial,
    render_result,
    stats_document,
    total_usage,
    uncount_trial,
)
from proctor.reward.read import validate_rewards
from proctor.reward.steps import Verdict
from tests.conformance.facts import Fact, observe
from tests.conformance.ours import Case
from tests.conformance.values import Encoded, decode_value, encode_value

FIXED = {
    "id": "00000000-0000-0000-0000-000000000007",
    "started_at": "2025-01-02T03:04:05.678901",
    "updated_at": "2025-01-02T03:05:06",
    "finished_at": "2025-01-02T03:05:06",
}
"""What a result.json says of itself when nobody says otherwise."""

SHARED_NAN: float = json.loads("NaN")


def replace_trial(stats: JobStats, trial: Trial, previous: Trial | None) -> None:
    """Count a trial in place of its earlier attempt, if any."""
    if previous is not None:
        uncount_trial(stats, previous)
    count_trial(stats, trial)


def assemble_job(case: Case, fixed: Mapping[str, str] = FIXED) -> Fact:
    kinds: dict[str, Callable[[], Fact]] = {
        "ops": lambda: _run_operations(case),
        "final_assembly": lambda: _assemble_final(case, fixed),
        "live": lambda: _assemble_live(case),
    }
    return observe(kinds[case["kind"]])


def _run_operations(case: Case) -> Fact:
    stats, trials = JobStats(), Trials()
    for operation in case["operations"]:
        match operation["op"]:
            case "increment":
                count_trial(stats, trials.find(operation["trial"]))
            case "remove":
                uncount_trial(stats, trials.find(operation["trial"]))
            case "update":
                previous = operation["previous"]
                replace_trial(
                    stats, trials.find(operation["new"]), previous and trials.find(previous)
                )
            case "progress":
                _count_progress(stats, **operation["args"])
            case unknown:
                raise AssertionError(f"unknown operation {unknown!r}")
    return {"stats_json": _render(stats), "cost_usd": encode_value(stats.cost_usd)}


def _count_progress(
    stats: JobStats,
    *,
    n_total_trials: int,
    n_running_trials: int = 0,
    n_cancelled_trials: int | None = None,
    n_retries: int = 0,
) -> None:
    stats.count_progress(
        n_total_trials, running=n_running_trials, cancelled=n_cancelled_trials, retries=n_retries
    )


def _assemble_final(case: Case, fixed: Mapping[str, str]) -> Fact:
    stats = assemble_final(_table(case), _metrics(case))
    stats.count_progress(case["n_total_trials"])
    result = JobResult(
        id=fixed["id"],
        started_at=datetime.fromisoformat(fixed["started_at"]),
        updated_at=datetime.fromisoformat(fixed["updated_at"]),
        finished_at=datetime.fromisoformat(fixed["finished_at"]),
        n_total_trials=case["n_total_trials"],
        stats=stats,
    )
    text = render_result(result).encode()
    return {
        "stats_json": _render(stats),
        "result_json_b64": base64.b64encode(text).decode(),
        "fixed": dict(fixed),
    }


def _assemble_live(case: Case) -> Fact:
    stats = assemble_live(_table(case), _metrics(case))
    stats.count_progress(case["n_total_trials"], running=case["n_running_trials"])
    return {"stats_json": _render(stats)}


def _table(case: Case) -> TrialTable:
    trials = Trials()
    return TrialTable(trials.find(trial) for trial in case["trials"])


def _metrics(case: Case) -> dict[str, list[Metric]]:
    return {name: builtin_metrics(names) for name, names in case["metrics_by_dataset"].items()}


def _render(stats: JobStats) -> str:
    return render_json(stats_document(stats))


class Trials:
    """Trials by their text: two mentions of an identical trial are the same object."""

    def __init__(self) -> None:
        self._known: dict[str, Trial] = {}

    def find(self, case: Case) -> Trial:
        text = json.dumps(case, sort_keys=True)
        if text not in self._known:
            self._known[text] = decode_trial(case)
        return self._known[text]


def decode_trial(case: Case) -> Trial:
    return Trial(
        name=case["trial_name"],
        task=case["task_name"],
        agent=case["agent"],
        model=case["model"],
        source=case["source"],
        verdict=_verdict(case),
        exception=case.get("exception"),
        usage=_usage(case),
    )


def _verdict(case: Case) -> Verdict | None:
    result = case["verifier_result"]
    return result and Verdict(validate_rewards(decode_rewards(case, result["rewards"])))


def decode_rewards(case: Case, encoded: Encoded) -> Any:
    """Rewards as a verifier left them; not validated yet."""
    rewards = decode_value(encoded)
    if not case.get("shared_nan") or rewards is None:
        return rewards
    return {key: SHARED_NAN if _is_nan(value) else value for key, value in rewards.items()}


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _usage(case: Case) -> Usage:
    if (result := case.get("agent_result")) is not None:
        return Usage(**result)
    steps = [Usage(**step) for step in case.get("step_results") or () if step is not None]
    return total_usage(steps) if steps else NO_USAGE
