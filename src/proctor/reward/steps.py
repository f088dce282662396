"""The steps of one trial to its rewards, and when a trial stops before its last step.

Harbor's rules: a failed step that was not verified ends the trial; so does a reward under the
step's minimum. Only steps that were executed count.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from proctor.reward.metric import mean
from proctor.reward.number import Number, Rewards

type Strategy = Literal["mean", "final"]
type MinReward = Number | Mapping[str, Number]

DEFAULT_STRATEGY: Strategy = "mean"


class Verdict(msgspec.Struct, frozen=True):
    """A verifier ran to its end. Its rewards may still be None (it said null)."""

    rewards: Rewards | None


class Step(msgspec.Struct, frozen=True):
    """One step as it ended."""

    name: str
    verdict: Verdict | None
    """None when the step was not verified."""
    exception: str | None = None
    """Name of the exception class, if one was recorded on the step."""
    min_reward: MinReward | None = None
    """What the step must reach for the trial to go on: one number for `reward`, or one a key."""


class Stop(msgspec.Struct, frozen=True):
    """Why the steps after this one were not run, in harbor's words."""

    level: Literal["warning", "debug"]
    message: str


def find_stop(step: Step, *, verifying: bool = True) -> Stop | None:
    """Whether the trial ends after this step, and why."""
    if step.exception is not None and step.verdict is None:
        return Stop("warning", f"Step '{step.name}' failed, aborting remaining steps")
    if step.min_reward is None or not verifying:
        return None
    shortfall = _find_shortfall(step.verdict.rewards if step.verdict else None, step.min_reward)
    if shortfall is None:
        return None
    return Stop("debug", f"Step '{step.name}' {shortfall}, aborting remaining steps")


def executed_steps(
    steps: Iterable[Step], *, verifying: bool = True
) -> tuple[list[Step], list[Stop]]:
    """The steps that a trial gets to, and the stop that ended it, if one did."""
    executed = []
    for step in steps:
        executed.append(step)
        if stop := find_stop(step, verifying=verifying):
            return executed, [stop]
    return executed, []


def trial_verdict(
    executed: Sequence[Step], strategy: Strategy = DEFAULT_STRATEGY
) -> Verdict | None:
    """What the trial as a whole is given: the last step's verdict, or the mean of all verdicts."""
    if strategy == "final":
        return executed[-1].verdict if executed else None
    verified = [step.verdict.rewards or {} for step in executed if step.verdict is not None]
    keys = {key: None for rewards in verified for key in rewards}
    if not keys:
        return None
    return Verdict({key: mean([rewards.get(key, 0) for rewards in verified]) for key in keys})


def _find_shortfall(rewards: Rewards | None, minimum: MinReward) -> str | None:
    thresholds = minimum if isinstance(minimum, Mapping) else {"reward": minimum}
    for key, declared in thresholds.items():
        # Harbor's task configuration makes every threshold a float, `1` too.
        threshold = float(declared)
        actual = rewards.get(key, float("-inf")) if rewards else float("-inf")
        if actual < threshold:
            return f"{key}={actual} below min_reward {threshold}"
    return None
