"""The numbers of a group of trials, and of a whole run."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from proctor.errors import InputError, StatisticsError
from proctor.harbor.stats import count_errored
from proctor.report.gate.limits import Limits
from proctor.report.gate.measured import Measured, MeasuredTrial
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.intervals import Interval, wilson
from proctor.reward.metric import DEFAULT_METRIC, RewardColumn, operands
from proctor.reward.metric import mean as mean_of
from proctor.reward.number import Number, json_number

type FindInterval = Callable[[Sequence[Sequence[float]]], Interval | None]
"""Computes the interval of a mean from the values of each task."""

_USUAL_KEY = "reward"
_LONGEST = 40


class GroupNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a group: one agent, model and dataset."""

    key: str
    reward_key: str | None
    """The reward that was used, if trials have several."""
    run: int
    scored: int
    """Trials with rewards, under any key."""
    zero_by_missing: int
    mean: float
    """Harbor's: a trial without the reward counts as 0."""
    mean_interval: Interval | None
    """95 %, by resampling whole tasks."""
    mean_scored: float | None
    """Over the trials with the reward only."""
    passed: int
    pass_rate: float
    """Passed trials divided by all that ran."""
    pass_interval: Interval | None
    """95 %, Wilson's."""


class Errors(msgspec.Struct, frozen=True):
    """Trials that failed for another reason than a wrong answer."""

    count: int
    trials: int
    """Trials that ran, including those with an unreadable result."""
    kinds: dict[str, int]
    """By exception, else by reason code."""
    errored: int = 0
    """Trials that raised an exception, whether or not they were scored."""


def value_of(trial: MeasuredTrial, reward_key: str | None) -> Number | None:
    """A trial's reward; None if it has none."""
    if not trial.rewards:
        return None
    if reward_key is None:
        return next(iter(trial.rewards.values()))
    return trial.rewards.get(reward_key)


def render_reward(value: Number) -> str:
    """Format a reward; long integers are cut."""
    text = json_number(value) if isinstance(value, int) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def values_of(trials: Sequence[MeasuredTrial], limits: Limits) -> tuple[str | None, list[Number]]:
    """The values that harbor adds up for the mean of a group, in order, and their reward key.

    Raises:
        InputError: trials have several rewards and none is chosen, or the chosen one is missing.
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
            f"{_USUAL_KEY!r}; pass --reward-key"
        )
    key = named or _USUAL_KEY
    return key, operands(column, DEFAULT_METRIC)[key]


def count_group(
    key: str,
    trials: Sequence[MeasuredTrial],
    limits: Limits,
    find_interval: FindInterval = cluster_bootstrap,
) -> GroupNumbers:
    """Compute the numbers of a group, which must not be empty."""
    reward_key, values = values_of(trials, limits)
    rewarded = [value_of(trial, reward_key) for trial in trials]
    scored = [value for value in rewarded if value is not None]
    n_scored = sum(bool(trial.rewards) for trial in trials)
    passed = sum(value >= limits.pass_mark for value in scored)
    by_task = list(group_by_task(trials, values).values())
    return GroupNumbers(
        key=key,
        reward_key=reward_key,
        run=len(trials),
        scored=n_scored,
        zero_by_missing=len(trials) - n_scored,
        mean=_mean(values),
        mean_interval=_interval(by_task, find_interval),
        mean_scored=_mean(scored) if scored else None,
        passed=passed,
        pass_rate=passed / len(trials),
        pass_interval=wilson(passed, len(trials)),
    )


def _interval(by_task: list[list[float]], find_interval: FindInterval) -> Interval | None:
    try:
        return find_interval(by_task)
    except StatisticsError:  # nan and infinities are valid rewards
        return None


def _mean(values: Sequence[Number]) -> float:
    try:
        return mean_of(values)
    except OverflowError:
        # Integers too large for a float: the mean meets no limit.
        return math.nan


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
    """Whether it has no reward, or an exception that is not ignored."""
    if not trial.rewards:
        return True
    return trial.exception is not None and trial.exception not in limits.ignored_errors


def count_errors(measured: Measured, limits: Limits) -> Errors:
    """The errors of a run, including unreadable results."""
    failed = [trial for trial in measured.trials if is_error(trial, limits)]
    kinds = Counter(trial.exception or trial.reason or "unknown" for trial in failed)
    if measured.broken:
        kinds["broken result"] = measured.broken
    return Errors(
        count=len(failed) + measured.broken,
        trials=measured.run + measured.broken,
        kinds=dict(kinds.most_common()),
        errored=count_errored(measured.trials),
    )
