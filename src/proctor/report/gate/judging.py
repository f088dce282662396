"""Compares the numbers of a run with limits: every condition, with what was found.

The mean is harbor's, computed by `reward`: a trial without a reward counts as 0, also in the
comparison with a baseline, task by task. Tasks that only one side has, or of which the sides have
different revisions, are listed and not compared.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from proctor.errors import InputError, StatisticsError
from proctor.harbor.stats import count_errored
from proctor.report.gate.runs import Run, Trial
from proctor.report.page.figures import render_ends, render_p
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.efficiency import Spent, add_up
from proctor.report.statistics.intervals import Interval, wilson
from proctor.report.statistics.paired import Paired, compare_paired
from proctor.reward.metric import DEFAULT_METRIC, RewardColumn, mean, operands
from proctor.reward.number import Number
from proctor.sentence import count_of, render_figure, render_money

type FindInterval = Callable[[Sequence[Sequence[float]]], Interval | None]
"""Computes the interval of a mean from the values of each task."""


class Miss(StrEnum):
    """Why a gate is missed, the gravest first; of several, the gravest decides."""

    DAMAGED = "damaged"
    """The ledger or the evidence is damaged: no number can be trusted."""
    UNSHOWN = "unshown"
    """A published number cannot be recomputed from the evidence."""
    INCOMPLETE = "incomplete"
    """Trials are missing, or too few."""
    ERRORS = "errors"
    """Too many trials failed for a reason other than a wrong answer."""
    SCORE = "score"
    """A number is below its limit, or dropped too far."""
    COST = "cost"
    """It cost too much, or the cost is unknown."""

    @property
    def exit_code(self) -> int:
        """The exit code of `proctor gate`."""
        codes = {"score": 1, "incomplete": 3, "errors": 4, "damaged": 5, "cost": 6, "unshown": 7}
        return codes[self]


class MaxErrors(msgspec.Struct, frozen=True):
    """Accepted errors: a number of trials, or a share of those that ran."""

    count: int | None = None
    share: float = 0.0

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{self.share:.4g} of the trials"

    def allows(self, errors: int, trials: int) -> bool:
        """Whether this many errors among this many trials are accepted."""
        if self.count is not None:
            return errors <= self.count
        # Tolerates float rounding: 29 of 100 are 29 %.
        return errors <= self.share * trials + 1e-9


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a gate; None: no limit."""

    min_mean: float | None = None
    min_pass_rate: float | None = None
    max_errors: MaxErrors | None = None
    max_cost_usd: float | None = None
    min_trials: int | None = None
    require_complete: bool = False
    max_drop: float = 0.0
    """Largest accepted drop from a baseline."""
    pass_mark: float = 1.0
    """The lowest reward that passes."""
    reward_key: str | None = None
    """The reward that counts if a trial has several; None: the only one, else `reward`."""
    ignored_errors: frozenset[str] = frozenset()
    """Exceptions that are not errors if the trial has a reward."""

    def is_error(self, trial: Trial) -> bool:
        """Whether it has no reward, or an exception that is not ignored."""
        if not trial.rewards:
            return True
        return trial.exception is not None and trial.exception not in self.ignored_errors


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, and whether it is met."""

    thing: str
    group: str | None = None
    """The group that it is about; null: the whole run."""
    condition: str
    found: str
    miss: Miss | None = None
    """Null: met."""


def gravest(checks: Sequence[Check]) -> Miss | None:
    """The gravest miss; None if all conditions are met."""
    missed = {check.miss for check in checks}
    return next((miss for miss in Miss if miss in missed), None)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one agent, model and dataset."""

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
    errored: int
    """Trials that raised an exception, whether or not they were scored."""

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {n}" for kind, n in self.kinds.items())
        return f"{self.count} of {count_of(self.trials, 'trial')}" + (
            f" ({kinds})" if kinds else ""
        )


class Drop(msgspec.Struct, frozen=True):
    """A group compared with a group of the baseline."""

    baseline: str
    paired: Paired
    other_revision: list[str]
    """Tasks whose revisions differ: not compared."""


class Judged(msgspec.Struct, kw_only=True):
    """A run with its numbers and the results of its checks."""

    run: Run
    limits: Limits
    groups: list[Group]
    errors: Errors
    cost: Spent
    drops: dict[str, Drop] = {}
    """By group, if there is a baseline."""
    checks: list[Check] = []

    def check(
        self, condition: str, found: str, miss: Miss, *, met: bool = False, group: str | None = None
    ) -> None:
        """Add a condition that is missed in this way, unless it is met."""
        self.checks.append(
            Check(
                thing=self.run.name,
                group=group,
                condition=condition,
                found=found,
                miss=None if met else miss,
            )
        )


def judge(
    run: Run,
    limits: Limits,
    baseline: Run | None = None,
    *,
    find_interval: FindInterval = cluster_bootstrap,
) -> Judged:
    """Check a run against limits, and compare it with a baseline if one is given."""
    groups = [count_group(trials, limits, find_interval) for trials in run.groups.values()]
    passed = sum(group.passed for group in groups)
    cost = add_up([trial.row.cost_usd for trial in run.trials], passed)
    errors = count_errors(run, limits)
    judged = Judged(run=run, limits=limits, groups=groups, errors=errors, cost=cost)
    for sentence in run.damage:
        judged.check("undamaged evidence", sentence, Miss.DAMAGED)
    for sentence in run.unshown:
        judged.check("published numbers that can be recomputed", sentence, Miss.UNSHOWN)
    if baseline is not None:
        _compare(judged, baseline)
    if not run.trials:
        judged.check("trials to judge", "none ran", Miss.INCOMPLETE)
    if limits.require_complete:
        missing = run.missing
        if run.planned is None:
            missing.append("the ledger has no plan for it: pass --planned")
        found = "; ".join(missing) or f"all of {count_of(len(run.trials), 'trial')}"
        judged.check("complete", found, Miss.INCOMPLETE, met=not missing)
    if limits.max_errors is not None:
        is_met = limits.max_errors.allows(errors.count, errors.trials)
        judged.check(f"errors <= {limits.max_errors}", str(errors), Miss.ERRORS, met=is_met)
    for group in groups:
        _check_group(judged, group)
    for key, drop in judged.drops.items():
        _check_drop(judged, key, drop)
    if (most := limits.max_cost_usd) is not None:
        is_met = cost.total is not None and cost.total <= most
        judged.check(f"cost <= {most!r} USD", render_cost(cost), Miss.COST, met=is_met)
    return judged


def _check_group(judged: Judged, group: Group) -> None:
    limits, key = judged.limits, group.key
    if (least := limits.min_trials) is not None:
        found, is_met = f"{group.scored} of {group.run} run", group.scored >= least
        judged.check(f"scored trials >= {least}", found, Miss.INCOMPLETE, met=is_met, group=key)
    for label, floor, value, interval in (
        ("mean", limits.min_mean, group.mean, group.mean_interval),
        ("pass rate", limits.min_pass_rate, group.pass_rate, group.pass_interval),
    ):
        if floor is not None:
            found = f"{_render_beside(value, floor)} {render_ends(interval)}".rstrip()
            # nan does not meet a limit either.
            is_met = value >= floor
            judged.check(f"{label} >= {floor!r}", found, Miss.SCORE, met=is_met, group=key)


def _render_beside(value: float, limit: float) -> str:
    """A number beside its limit: with all its digits if it would otherwise look equal to it."""
    shown = render_figure(value)
    return repr(value) if shown == render_figure(limit) and value != limit else shown


# The comparison with a baseline


def _compare(judged: Judged, baseline: Run) -> None:
    """Compare every group with the baseline; what cannot be compared is missed."""
    run, condition = judged.run, f"a baseline to compare with: {baseline.name}"
    if baseline.damage:
        judged.check(condition, baseline.damage[0], Miss.DAMAGED)
    elif baseline.unshown:
        judged.check(condition, baseline.unshown[0], Miss.UNSHOWN)
    elif not baseline.trials:
        judged.check(condition, "none of its trials ran", Miss.INCOMPLETE)
    if judged.checks:
        return
    theirs = baseline.groups
    for key, trials in run.groups.items():
        if len(theirs) > 1 and key not in theirs:
            raise InputError(
                f"{baseline.name}: has the groups {', '.join(theirs) or '-'}; expected one, or the "
                f"groups of {run.name}: {', '.join(run.groups)}"
            )
        against = theirs[key] if key in theirs else next(iter(theirs.values()))
        try:
            judged.drops[key] = _find_drop(trials, against, baseline.name, judged.limits)
        except StatisticsError as error:
            judged.check(f"comparable with {baseline.name}", str(error), Miss.SCORE, group=key)


def _find_drop(ours: list[Trial], theirs: list[Trial], baseline: str, limits: Limits) -> Drop:
    a, b = (_group_by_task(side, _values(side, limits)[1]) for side in (ours, theirs))
    now, before = _find_revisions(ours), _find_revisions(theirs)
    changed = [task for task in a if now[task] and before.get(task) and now[task] != before[task]]
    for task in changed:
        del a[task], b[task]
    return Drop(baseline, compare_paired(a, b), changed)


def _find_revisions(trials: Sequence[Trial]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for trial in trials:
        known = found.setdefault(trial.task, set())
        if trial.revision is not None:
            known.add(trial.revision)
    return found


def _check_drop(judged: Judged, key: str, drop: Drop) -> None:
    paired, most = drop.paired, judged.limits.max_drop
    found, miss, is_met = "no task in common", Miss.INCOMPLETE, False
    if (difference := paired.difference) is not None:
        # Tolerates the rounding of equal means.
        miss, is_met = Miss.SCORE, -difference <= most + 1e-12
        sign = "+" if difference > 0 else ""
        shown = f"{sign}{_render_beside(difference, -most)} {render_ends(paired.interval)}".rstrip()
        found = (
            f"{shown} over {count_of(paired.n_tasks, 'task')}: {paired.wins} won, "
            f"{paired.ties} tied, {paired.losses} lost, p = {render_p(paired.p_value)}"
        )
    left_out = {
        "only here": paired.only_a,
        f"only in {drop.baseline}": paired.only_b,
        "of another revision": drop.other_revision,
    }
    if any(left_out.values()):
        found += "; not compared: " + ", ".join(
            f"{count_of(len(tasks), 'task')} {what}" for what, tasks in left_out.items() if tasks
        )
    condition = f"drop against {drop.baseline} <= {most!r}"
    judged.check(condition, found, miss, met=is_met, group=key)


# The numbers


def render_cost(cost: Spent) -> str:
    """A cost, with what is unknown of it."""
    if cost.total is not None:
        each = "" if cost.per_success is None else f", {render_money(cost.per_success)} per pass"
        return f"{render_money(cost.total)}{each}"
    trials = count_of(cost.n_known + cost.n_unknown, "trial")
    if not cost.n_known:
        return f"unknown for all of {trials}"
    return f"unknown for {cost.n_unknown} of {trials}; the others cost {render_money(cost.known)}"


def count_errors(run: Run, limits: Limits) -> Errors:
    """The errors of a run, including unreadable results."""
    failed = [trial for trial in run.trials if limits.is_error(trial)]
    kinds = Counter(trial.exception or trial.reason or "unknown" for trial in failed)
    if run.broken:
        kinds["broken result"] = run.broken
    return Errors(
        count=len(failed) + run.broken,
        trials=len(run.trials) + run.broken,
        kinds=dict(kinds.most_common()),
        errored=count_errored(run.trials),
    )


def count_group(
    trials: Sequence[Trial], limits: Limits, find_interval: FindInterval = cluster_bootstrap
) -> Group:
    """The numbers of a group, which must not be empty.

    Raises:
        InputError: trials have several rewards and none is chosen, or the chosen one is missing.
    """
    key, values = _values(trials, limits)
    scored = [value for trial in trials if (value := trial.value(key)) is not None]
    n_scored = sum(bool(trial.rewards) for trial in trials)
    passed = sum(value >= limits.pass_mark for value in scored)
    try:
        interval = find_interval(list(_group_by_task(trials, values).values()))
    except StatisticsError:  # nan and infinities are valid rewards
        interval = None
    return Group(
        key=trials[0].group,
        reward_key=key,
        run=len(trials),
        scored=n_scored,
        zero_by_missing=len(trials) - n_scored,
        mean=_mean(values),
        mean_interval=interval,
        mean_scored=_mean(scored) if scored else None,
        passed=passed,
        pass_rate=passed / len(trials),
        pass_interval=wilson(passed, len(trials)),
    )


def _values(trials: Sequence[Trial], limits: Limits) -> tuple[str | None, list[Number]]:
    """The key of the reward that counts, and the values that harbor adds up for the mean."""
    column = RewardColumn(trial.rewards for trial in trials)
    keys, named, group = column.keys, limits.reward_key, trials[0].group
    if named is not None and named not in keys:
        there = ", ".join(keys) or "none"
        raise InputError(f"{group}: no trial has a reward {named!r}; expected one of: {there}")
    if len(keys) <= 1:
        return None, operands(column, DEFAULT_METRIC)[DEFAULT_METRIC]
    key = named or "reward"
    if key not in keys:
        raise InputError(
            f"{group}: trials have the rewards {', '.join(keys)}, none of them 'reward'; "
            "pass --reward-key"
        )
    return key, operands(column, DEFAULT_METRIC)[key]


def _group_by_task(trials: Sequence[Trial], values: Sequence[Number]) -> dict[str, list[float]]:
    """The values of a group's trials by task."""
    by_task: dict[str, list[float]] = {}
    for trial, value in zip(trials, values, strict=True):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
        by_task.setdefault(trial.task, []).append(number)
    return by_task


def _mean(values: Sequence[Number]) -> float:
    try:
        return mean(values)
    except OverflowError:
        # Integers too large for a float: the mean meets no limit.
        return math.nan
