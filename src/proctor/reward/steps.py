"""Combine the steps of a trial into its rewards, and decide when a trial stops early.

harbor's rules: a failed step that was not verified ends the trial, and so does a reward below the
step's minimum. Only executed steps count.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from proctor.reward.metric import mean
from proctor.reward.number import Number, Rewards

type Strategy = Literal["mean", "final"]
type MinReward = Number | Mapping[str, Number]

DEFAULT_STRATEGY: Strategy = "mean"


class Verdict(msgspec.Struct, frozen=True):
    """The result of a verifier that finished. The rewards may still be None (it wrote null)."""

    rewards: Rewards | None


class Step(msgspec.Struct, frozen=True):
    """One finished step."""

    name: str
    verdict: Verdict | None
    """None when the step was not verified."""
    exception: str | None = None
    """Name of the exception class, if one was recorded on the step."""
    min_reward: MinReward | None = None
    """Minimum for the trial to continue: one number for `reward`, or one per key."""


class Stop(msgspec.Struct, frozen=True):
    """Why the remaining steps were not run, in harbor's words."""

    level: Literal["warning", "debug"]
    message: str


def find_stop(step: Step, *, verifying: bool = True) -> Stop | None:
    """Return why the trial ends after this step, or None if it continues."""
    if step.exception is not None and step.verdict is None:
        return Stop("warning", f"Step '{step.name}' failed, aborting remaining steps")
    if step.min_reward is None or not verifying:
        return None
    shortfall = _find_shortfall(step.verdict.rewards if step.verdict else None, step.min_reward)
    if shortfall is None:
        return None
    return Stop("debug", f"Step '{step.name}' {shortfall}, aborting remaining steps")


def trial_verdict(
    executed: Sequence[Step], strategy: Strategy = DEFAULT_STRATEGY
) -> Verdict | None:
    """The verdict of the trial: the last step's, or the mean over all verified steps."""
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
