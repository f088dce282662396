"""What the real harbor makes of a job_stats vector's `input`: the other side of `job_cases`.

The trials are given; how they are counted, added up and written is harbor's own `Job.run`, its
hooks and its `JobStats`.
"""

import asyncio
import base64
import json
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.conformance.facts import Fact, observe
from tests.conformance.ours import Case
from tests.conformance.theirs import harbor_module
from tests.conformance.values import encode_value
from tests.harbor.job_cases import FIXED, decode_rewards


def assemble_job(case: Case) -> Fact:
    kinds: dict[str, Callable[[], Fact]] = {
        "ops": lambda: _run_operations(case),
        "final_assembly": lambda: _assemble_final(case),
        "live": lambda: _assemble_live(case),
    }
    return observe(kinds[case["kind"]])


def _run_operations(case: Case) -> Fact:
    stats, trials = harbor_module("harbor.models.job.result").JobStats(), Trials()
    for operation in case["operations"]:
        match operation["op"]:
            case "increment":
                stats.increment(trials.find(operation["trial"]))
            case "remove":
                stats.remove_trial(trials.find(operation["trial"]))
            case "update":
                previous = operation["previous"]
                new = trials.find(operation["new"])
                stats.update_trial(new, previous and trials.find(previous))
            case "progress":
                stats.update_progress_counts(**operation["args"])
    return {"stats_json": stats.model_dump_json(), "cost_usd": encode_value(stats.cost_usd)}


def _assemble_final(case: Case) -> Fact:
    trials = Trials()
    job = given_job()([trials.find(trial) for trial in case["trials"]], case)
    job.finish()
    return {
        "stats_json": job._job_result.stats.model_dump_json(),
        "result_json_b64": base64.b64encode(job.text.encode()).decode(),
        "fixed": FIXED,
    }


def _assemble_live(case: Case) -> Fact:
    trials = Trials()
    job = given_job()([trials.find(trial) for trial in case["trials"]], case)
    job.break_off(case["n_running_trials"])
    return {"stats_json": job._job_result.stats.model_dump_json()}


class Trials:
    """harbor's trial results by their text: two mentions of an identical trial are one object."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def find(self, case: Case) -> Any:
        text = json.dumps(case, sort_keys=True)
        if text not in self._known:
            self._known[text] = trial_result(case)
        return self._known[text]


def trial_result(case: Case) -> Any:
    """A TrialResult with what counts: rewards validated, the rest as given."""
    module = harbor_module("harbor.models.trial.result")
    result = case["verifier_result"]
    model = case["model"] if case["model"] is None else module.ModelInfo(name=case["model"])
    return module.TrialResult.model_construct(
        trial_name=case["trial_name"],
        task_name=case["task_name"],
        source=case["source"],
        agent_info=module.AgentInfo(name=case["agent"], version="1", model_info=model),
        agent_result=_agent_context(case.get("agent_result")),
        verifier_result=result and verifier_result(decode_rewards(case, result["rewards"])),
        exception_info=exception_info(case.get("exception")),
        step_results=_step_results(case.get("step_results")),
    )


def verifier_result(rewards: Any) -> Any:
    return harbor_module("harbor.models.verifier.result").VerifierResult(rewards=rewards)


def exception_info(name: str | None) -> Any:
    if name is None:
        return None
    return harbor_module("harbor.models.trial.result").ExceptionInfo(
        exception_type=name,
        exception_message="",
        exception_traceback="",
        occurred_at=datetime(2025, 1, 2, tzinfo=UTC),
    )


def _agent_context(usage: Case | None) -> Any:
    return usage and harbor_module("harbor.models.agent.context").AgentContext(**usage)


def _step_results(usages: list[Case | None] | None) -> Any:
    step_result = harbor_module("harbor.models.trial.result").StepResult
    return usages and [
        step_result(step_name=f"s{at}", agent_result=_agent_context(usage))
        for at, usage in enumerate(usages)
    ]


class _Silence:
    """A progress display that shows nothing."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> "_Silence":
        return self

    def __exit__(self, *_: object) -> None: ...

    def add_task(self, *_: object, **__: object) -> int:
        return 0


class _Given:
    """A job whose trials have ended, and which writes into memory; stands before harbor's Job."""

    _job_result: Any
    _init_progress_tracking: Any
    _is_cancelled_result: Any
    _on_trial_started: Any
    _on_trial_completed: Any
    run: Any
    text = ""
    _n_left_running: int | None = None

    def __init__(self, trials: list[Any], case: Case) -> None:
        create = harbor_module("harbor.metrics.factory").MetricFactory.create_metric
        self.config = SimpleNamespace(quiet=True, model_dump_json=lambda **_: "")
        self._given = trials
        self._id = UUID(FIXED["id"])
        self._trial_configs = [None] * case["n_total_trials"]
        self._metrics: Any = defaultdict(list)
        for dataset, names in case["metrics_by_dataset"].items():
            self._metrics[dataset] = [create(name) for name in names]
        self._existing_job_result = self._log_file_handler = self._console_handler = None
        self._existing_trial_results: list[Any] = []
        self._existing_trial_configs: list[Any] = []
        self._remaining_trial_configs: list[Any] = []
        self._previous_trial_results: dict[str, Any] = {}
        self._live_rewards: Any = defaultdict(dict)
        self._trial_completion_lock = asyncio.Lock()
        self._init_progress_tracking()

    def finish(self) -> None:
        """Let the job run to its end."""
        asyncio.run(self.run())

    def break_off(self, n_running: int) -> None:
        """Let the trials end while others still run, and go no further."""
        self._n_left_running = n_running
        try:
            asyncio.run(self.run())
        except InterruptedError:
            return
        raise AssertionError("the job was not interrupted")

    async def _run_trials_with_queue(self, *_: object) -> list[Any]:
        if self._n_left_running is not None:
            await self._live_until_interrupted(self._n_left_running)
        self._cancelled_trial_ids = {
            result.trial_name for result in self._given if self._is_cancelled_result(result)
        }
        return self._given

    async def _live_until_interrupted(self, n_running: int) -> None:
        for result in self._given:
            await self._on_trial_started(_event(result.trial_name))
        for result in self._given:
            await self._on_trial_completed(_event(result.trial_name, result))
        for number in range(n_running):
            await self._on_trial_started(_event(f"left-{number}"))
        raise InterruptedError

    @property
    def _job_config_path(self) -> Path:
        return Path("/dev/null")

    def _init_job_lock(self) -> None: ...

    def _write_job_lock(self) -> None: ...

    async def _write_job_result_async(self, **_: object) -> None:
        """Not before the end: the last text is all that is asked for."""

    def _write_job_result(self, **_: object) -> None:
        dated = self._job_result.model_copy(update={key: FIXED[key] for key in DATES})
        self.text = dated.model_dump_json(indent=4, exclude={"trial_results"}, warnings=False)


@cache
def given_job() -> Any:
    """Harbor's Job with everything but its trials, its files and its display."""
    module = harbor_module("harbor.job")
    module.Progress = _Silence
    return type("GivenJob", (_Given, module.Job), {})


DATES = ("started_at", "updated_at", "finished_at")


def _event(trial_name: str, result: Any = None) -> SimpleNamespace:
    return SimpleNamespace(trial_id=trial_name, timestamp=datetime.now(UTC), result=result)
