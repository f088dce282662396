"""What the real harbor makes of a vector's `input`, as a fact. One function a subject, like `ours`.

Harbor is imported on first use: that takes seconds, and collecting the tests should not.
"""

import importlib
import os
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conformance.facts import Fact, observe
from tests.conformance.ours import Case, describe_pass_at_k, describe_verdict, verifier_directory
from tests.conformance.values import Encoded, decode_value, encode_value


@cache
def harbor_module(name: str) -> Any:
    """A module of harbor, by its full name."""
    # A library of harbor's fetches a price list on import unless it is told not to.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return importlib.import_module(name)


def parse_rewards(case: Case) -> Fact:
    with verifier_directory(case) as directory:
        return observe(lambda: _describe_result(verify(directory.parent)), str(directory))


def verify(trial: Path) -> Any:
    """`Verifier.verify` of a trial whose environment has already left its files."""
    tests = Path("/tests")
    task = SimpleNamespace(
        paths=SimpleNamespace(tests_dir=tests, test_path_for=lambda _: tests / "test.sh"),
        config=SimpleNamespace(verifier=SimpleNamespace(env={})),
    )
    verifier = harbor_module("harbor.verifier.verifier").Verifier(
        task=task,
        trial_paths=harbor_module("harbor.models.trial.paths").TrialPaths(trial),
        environment=_IdleEnvironment(),
        skip_tests_upload=True,
    )
    return _finish(verifier.verify())


class _IdleEnvironment:
    """A container in which nothing happens and whose logs are mounted."""

    capabilities = SimpleNamespace(mounted=True)

    @property
    def os(self) -> Any:
        return harbor_module("harbor.models.task.config").TaskOS.LINUX

    async def exec(self, **_: object) -> Any:
        """Do nothing."""
        return SimpleNamespace(return_code=0)

    def is_path_mounted(self, *_: object) -> bool:
        """Later releases ask for each directory."""
        return True


def _finish(coroutine: Any) -> Any:
    """Run a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("harbor waited for something")


def _describe_result(result: Any) -> Fact:
    text = result.model_dump_json()
    reload = type(result).model_validate_json
    return {
        "rewards": encode_value(result.rewards),
        "json": text,
        "reload_from_json": observe(lambda: {"rewards": encode_value(reload(text).rewards)}),
    }


def run_metric(case: Case) -> Fact:
    name = case["metric"]
    metric = getattr(harbor_module(f"harbor.metrics.{name}"), name.capitalize())()
    rewards = [decode_value(item) for item in case["rewards"]]

    def compute() -> Fact:
        output = metric.compute(rewards)
        text = _render_stats("metrics", [output]).removeprefix("[").removesuffix("]")
        return {"output": encode_value(output), "json": text}

    return observe(compute)


def _render_stats(field: str, value: Any) -> str:
    """The JSON text of one field of a group's statistics."""
    stats = harbor_module("harbor.models.job.result").AgentDatasetStats(**{field: value})
    text: str = stats.model_dump_json(include={field})
    return text.removeprefix(f'{{"{field}":').removesuffix("}")


def run_pass_at_k(case: Case) -> Fact:
    module = harbor_module("harbor.utils.pass_at_k")
    match case["kind"]:
        case "task":
            arguments = (case["n"], case["c"], case["k"])
            return observe(lambda: encode_value(module._pass_at_k_for_task(*arguments)))
        case "eligible":
            return observe(lambda: module._eligible_k_values(case["min_trials"]))
    trials = [_trial_result(trial) for trial in case["trials"]]
    return observe(
        lambda: describe_pass_at_k(
            module.compute_pass_at_k_by_evals(trials),
            lambda values: _render_stats("pass_at_k", values),
        )
    )


def _trial_result(trial: Case) -> Any:
    model = None if trial["model"] is None else SimpleNamespace(name=trial["model"])
    return SimpleNamespace(
        task_name=trial["task_name"],
        source=trial["source"],
        agent_info=SimpleNamespace(name=trial["agent"], model_info=model),
        verifier_result=_verifier_result(
            trial["verifier_result"], validate=not trial.get("construct")
        ),
    )


def _verifier_result(result: Encoded, *, validate: bool = True) -> Any:
    if result is None:
        return None
    model = harbor_module("harbor.models.verifier.result").VerifierResult
    make = model if validate else model.model_construct
    return make(rewards=decode_value(result["rewards"]))


def run_steps(case: Case) -> Fact:
    return observe(lambda: _describe_steps(case))


def _describe_steps(case: Case) -> Fact:
    config = harbor_module("harbor.models.task.config")
    strategy = case["strategy"] or "mean"
    trial = _scripted_trial()(case)
    trial.task.config.multi_step_reward_strategy = config.MultiStepRewardStrategy(strategy)
    _finish(trial._run())
    result = trial.result.verifier_result
    return {
        "executed_steps": [step.step_name for step in trial.result.step_results],
        "verifier_result": result and describe_verdict(result.rewards, strategy),
        "log": trial.log,
    }


@cache
def _scripted_trial() -> Any:
    """A MultiStepTrial whose steps end as the case says; which run and what counts is harbor's."""
    step_config = harbor_module("harbor.models.task.config").StepConfig

    class ScriptedTrial(harbor_module("harbor.trial.multi_step").MultiStepTrial):  # type: ignore[misc]
        result = SimpleNamespace()

        def __init__(self, case: Case) -> None:
            steps = [
                step_config(name=step["name"], min_reward=decode_value(step["min_reward"]))
                for step in case["steps"]
            ]
            disabled = case["verification_disabled"]
            self.log: list[list[str]] = []
            self.result = SimpleNamespace(step_results=None, verifier_result=None)
            self.task = SimpleNamespace(config=SimpleNamespace(steps=steps))
            self.config = SimpleNamespace(verifier=SimpleNamespace(disable=disabled))
            self.paths = SimpleNamespace(cleanup_empty_mount_dirs=lambda: None)
            self.logger = SimpleNamespace(
                debug=lambda message: self.log.append(["debug", message]),
                warning=lambda message: self.log.append(["warning", message]),
            )
            self._endings = {step["name"]: step for step in case["steps"]}

        async def _run_step(self, step: Any, step_result: Any, **_: object) -> None:
            ending = self._endings[step.name]
            step_result.verifier_result = _verifier_result(ending["verifier_result"])
            step_result.exception_info = ending["exception"]

        async def _stop_agent_environment(self) -> None:
            """There is none."""

        def _move_agent_dir_to_step(self, step: Any) -> None:
            """Later releases move files here, of which there are none."""

    return ScriptedTrial
