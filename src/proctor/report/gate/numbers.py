"""The numbers of a group of trials, and those of a run as a whole."""

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from proctor.errors import InputError
from proctor.report.gate.limits import Limits
from proctor.report.gate.measured import Measured, MeasuredTrial
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.efficiency import Spent, add_up
from proctor.report.statistics.intervals import Interval, wilson
from proctor.reward.column import RewardColumn
from proctor.reward.metric import DEFAULT_METRIC, operands
from proctor.reward.metric import mean as mean_of
from proctor.reward.number import Number, is_finite

_USUAL_KEY = "reward"


class GroupNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a group of trials scored: agent, model, dataset."""

    key: str
    reward_key: str | None
    """Which reward was taken, where trials have several."""
    run: int
    scored: int
    zero_by_missing: int
    mean: float
    """Harbor's: a trial without a reward is 0."""
    mean_interval: Interval | None
    """95 %, tasks drawn as a whole."""
    mean_scored: float | None
    """Over the trials with a reward alone."""
    passed: int
    pass_rate: float
    """Passed of run."""
    pass_interval: Interval | None
    """95 %, Wilson."""


class Errors(msgspec.Struct, frozen=True):
    """Trials that ended for another reason than a wrong answer."""

    count: int
    trials: int
    """That ran, broken ones among them."""
    kinds: dict[str, int]
    """By exception, else by reason code."""


def value_of(trial: MeasuredTrial, reward_key: str | None) -> Number | None:
    """A trial's reward; None where it has none."""
    if not trial.rewards:
        return None
    return (
        next(iter(trial.rewards.values()))
        if reward_key is None
        else (trial.rewards.get(reward_key))
    )


def values_of(trials: Sequence[MeasuredTrial], limits: Limits) -> tuple[str | None, list[Number]]:
    """What harbor adds up for the mean of a group, in order, and the key it is taken from.

    Raises:
        InputError: trials have several rewards and none is named, or the one named is not there.
    """
    column = RewardColumn(trial.rewards for trial in trials)
    named = limits.reward_key
    if named is not None and named not in column.keys:
        there = ", ".join(column.keys) or "none"
        raise InputError(
            f"{trials[0].group}: no trial has a reward {named!r}; expected one of: {there}"
        )
    if len(column.keys) <= 1:
        return None, operands(column, DEFAULT_METRIC)[DEFAULT_METRIC]
    if named is None and _USUAL_KEY not in column.keys:
        raise InputError(
            f"{trials[0].group}: trials have the rewards {', '.join(column.keys)}, none of them "
            f"{_USUAL_KEY!r}; --reward-key says which one counts"
        )
    key = named or _USUAL_KEY
    return key, operands(column, DEFAULT_METRIC)[key]


def count_group(key: str, trials: Sequence[MeasuredTrial], limits: Limits) -> GroupNumbers:
    """The numbers of a group; it has a trial at least.

    Raises:
        InputError: which reward counts is not said.
    """
    reward_key, values = values_of(trials, limits)
    rewarded = [value_of(trial, reward_key) for trial in trials]
    scored = [value for value in rewarded if value is not None]
    passed = sum(value >= limits.pass_mark for value in scored)
    return GroupNumbers(
        key=key,
        reward_key=reward_key,
        run=len(trials),
        scored=len(scored),
        zero_by_missing=len(trials) - len(scored),
        mean=mean_of(values),
        mean_interval=_interval(trials, values),
        mean_scored=mean_of(scored) if scored else None,
        passed=passed,
        pass_rate=passed / len(trials),
        pass_interval=wilson(passed, len(trials)),
    )


def _interval(trials: Sequence[MeasuredTrial], values: Sequence[Number]) -> Interval | None:
    by_task = group_by_task(trials, values)
    return cluster_bootstrap(list(by_task.values())) if all(map(is_finite, values)) else None


def group_by_task(
    trials: Sequence[MeasuredTrial], values: Sequence[Number]
) -> dict[str, list[float]]:
    """The values of a group's trials by task."""
    by_task: dict[str, list[float]] = {}
    for trial, value in zip(trials, values, strict=True):
        by_task.setdefault(trial.task, []).append(_real(value))
    return by_task


def _real(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_error(trial: MeasuredTrial, limits: Limits) -> bool:
    """Whether it has no reward, or an exception that is not let pass."""
    if not trial.rewards:
        return True
    return trial.exception is not None and trial.exception not in limits.ignored_errors


def count_errors(measured: Measured, limits: Limits) -> Errors:
    """The errors of a run, broken trials among them."""
    failed = [trial for trial in measured.trials if is_error(trial, limits)]
    kinds = Counter(trial.exception or trial.reason or "unknown" for trial in failed)
    if measured.broken:
        kinds["broken result"] = measured.broken
    return Errors(
        count=len(failed) + measured.broken,
        trials=measured.run + measured.broken,
        kinds=dict(kinds.most_common()),
    )


def add_costs(measured: Measured) -> Spent:
    """What the counted trials of a run cost, as far as it is known."""
    scored = sum(bool(trial.rewards) for trial in measured.trials)
    return add_up([trial.cost_usd for trial in measured.trials], scored)
