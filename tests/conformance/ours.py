"""What proctor makes of a vector's `input`, as a fact. One function a subject."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proctor.reward.metric import RewardColumn, compute_metric
from proctor.reward.number import Rewards
from proctor.reward.passk import eligible_ks, estimate, pass_at_k
from proctor.reward.profile import DEFAULT_PROFILE, Profile
from proctor.reward.read import load_rewards, validate_rewards
from proctor.reward.steps import DEFAULT_STRATEGY, Step, Stop, Verdict, find_stop, trial_verdict
from tests.conformance.facts import Fact, observe
from tests.conformance.files import write_files
from tests.conformance.values import Encoded, decode_value, encode_value, render_compact

type Case = dict[str, Any]
"""A vector's input: JSON whose values are encoded."""


@contextmanager
def verifier_directory(case: Case) -> Iterator[Path]:
    """The files of a reward_parse case, laid out as a trial has them."""
    with TemporaryDirectory(prefix="proctor-case-") as trial:
        directory = Path(trial, "verifier")
        directory.mkdir()
        write_files(directory, case["files"])
        yield directory


def parse_rewards(case: Case, profile: Profile = DEFAULT_PROFILE) -> Fact:
    with verifier_directory(case) as directory:
        return observe(
            lambda: _describe_rewards(load_rewards(str(directory), profile)), str(directory)
        )


def _describe_rewards(rewards: Rewards | None) -> Fact:
    text = render_compact({"rewards": rewards})
    return {
        "rewards": encode_value(rewards),
        "json": text,
        "reload_from_json": observe(
            lambda: {"rewards": encode_value(validate_rewards(json.loads(text)["rewards"]))}
        ),
    }


def run_metric(case: Case) -> Fact:
    column = RewardColumn(decode_value(item) for item in case["rewards"])

    def compute() -> Fact:
        output = compute_metric(case["metric"], column)
        return {"output": encode_value(output), "json": render_compact(output)}

    return observe(compute)


def run_pass_at_k(case: Case) -> Fact:
    match case["kind"]:
        case "task":
            return observe(lambda: encode_value(estimate(case["n"], case["c"], case["k"])))
        case "eligible":
            return observe(lambda: eligible_ks(case["min_trials"]))
    return observe(lambda: _pass_at_k_of_groups(case["trials"]))


def _pass_at_k_of_groups(trials: list[Case]) -> Fact:
    groups: dict[str, list[Case]] = {}
    for trial in trials:
        groups.setdefault(evals_key(trial), []).append(trial)
    found = {key: _pass_at_k_of_group(group) for key, group in groups.items()}
    found = {key: values for key, values in found.items() if values}
    return describe_pass_at_k(found, render_compact)


def describe_pass_at_k(
    found: dict[str, dict[int, float]], render: Callable[[dict[int, float]], str]
) -> Fact:
    return {
        "by_evals": {
            key: [[k, encode_value(value)] for k, value in values.items()]
            for key, values in found.items()
        },
        "evals_order": list(found),
        "json": {key: render(values) for key, values in found.items()},
    }


def evals_key(trial: Case) -> str:
    parts = (trial["agent"], trial["model"], trial["source"] or "adhoc")
    return "__".join(part for part in parts if part)


def _pass_at_k_of_group(trials: list[Case]) -> dict[int, float]:
    return pass_at_k([trial["task_name"] for trial in trials], RewardColumn(map(_rewards, trials)))


def _rewards(trial: Case) -> Rewards | None:
    if trial["verifier_result"] is None:
        return None
    rewards: Rewards | None = decode_value(trial["verifier_result"]["rewards"])
    return rewards if trial.get("construct") else validate_rewards(rewards)


def run_steps(case: Case) -> Fact:
    return observe(lambda: _describe_steps(case))


def _describe_steps(case: Case) -> Fact:
    strategy = case["strategy"] or DEFAULT_STRATEGY
    steps: list[Step] = []
    stops: list[Stop] = []
    for step in map(_step, case["steps"]):
        steps.append(step)
        if stop := find_stop(step, verifying=not case["verification_disabled"]):
            stops.append(stop)
            break
    verdict = trial_verdict(steps, strategy)
    return {
        "executed_steps": [step.name for step in steps],
        "verifier_result": verdict and describe_verdict(verdict.rewards, strategy),
        "log": [[stop.level, stop.message] for stop in stops],
    }


def describe_verdict(rewards: Rewards | None, strategy: str) -> Encoded:
    """The rewards of a trial; sorted when they are means, because harbor's order is a set's."""
    if rewards is not None and strategy == "mean":
        rewards = dict(sorted(rewards.items()))
    return {"rewards": encode_value(rewards)}


def _step(case: Case) -> Step:
    result = case["verifier_result"]
    return Step(
        name=case["name"],
        verdict=result and Verdict(validate_rewards(decode_value(result["rewards"]))),
        exception=case["exception"],
        min_reward=decode_value(case["min_reward"]),
    )
