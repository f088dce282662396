"""Compares the numbers of a run with limits: every condition, with what was found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from proctor.errors import InputError, StatisticsError
from proctor.record.comparable import UNKNOWN
from proctor.report.gate.limits import Check, Limits, Miss
from proctor.report.gate.measured import Measured, MeasuredTrial
from proctor.report.gate.numbers import (
    Errors,
    FindInterval,
    GroupNumbers,
    count_errors,
    count_group,
    group_by_task,
    values_of,
)
from proctor.report.page.figures import render_ends, render_p
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.efficiency import Spent, add_up
from proctor.report.statistics.paired import Paired, compare_paired
from proctor.sentence import count_of, render_figure, render_money

# Comparison with a baseline, task by task. Only tasks that both ran in the same revision are
# compared; the others are listed. A trial without a reward counts as 0 on both sides, as in the
# mean.


@dataclass(frozen=True, slots=True)
class Drop:
    """A group compared with a group of the baseline."""

    baseline: str
    paired: Paired
    changed: list[str]
    """Tasks whose revisions differ: not compared."""


def choose_baseline(key: str, measured: Measured, baseline: Measured) -> list[MeasuredTrial]:
    """The baseline's trials to compare a group with: its only group, or the one with the same key.

    Raises:
        InputError: the baseline has several groups, and not this one.
    """
    groups = baseline.groups
    if len(groups) == 1:
        return next(iter(groups.values()))
    if key not in groups:
        raise InputError(
            f"{baseline.name}: has the groups {', '.join(groups) or '-'}; expected one, or the "
            f"groups of {measured.name}: {', '.join(measured.groups)}"
        )
    return groups[key]


def compare_with(
    trials: Sequence[MeasuredTrial], baseline: Sequence[MeasuredTrial], name: str, limits: Limits
) -> Drop:
    """Compare a group with a group of the baseline."""
    sides = [group_by_task(side, values_of(side, limits)[1]) for side in (trials, baseline)]
    ours, theirs = _find_revisions(trials), _find_revisions(baseline)
    changed = [
        task for task, known in ours.items() if known and theirs.get(task) and known != theirs[task]
    ]
    kept: list[Mapping[str, Sequence[float]]] = [
        {task: values for task, values in side.items() if task not in changed} for side in sides
    ]
    return Drop(name, compare_paired(*kept), changed)


def _find_revisions(trials: Sequence[MeasuredTrial]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for trial in trials:
        known = found.setdefault(trial.task, set())
        if trial.revision is not None and trial.revision != UNKNOWN:
            known.add(trial.revision)
    return found


@dataclass(slots=True)
class Judged:
    """A run with its numbers and the results of its checks."""

    measured: Measured
    groups: list[GroupNumbers]
    errors: Errors
    cost: Spent
    drops: dict[str, Drop] = field(default_factory=dict)
    """By group, if there is a baseline."""
    checks: list[Check] = field(default_factory=list)


def judge(
    measured: Measured,
    limits: Limits,
    baseline: Measured | None = None,
    *,
    find_interval: FindInterval = cluster_bootstrap,
) -> Judged:
    """Check a run against limits, and compare it with a baseline if one is given."""
    groups = [
        count_group(key, trials, limits, find_interval) for key, trials in measured.groups.items()
    ]
    passed = sum(group.passed for group in groups)
    costs = add_up([trial.row.cost_usd for trial in measured.trials], passed)
    judged = Judged(measured, groups, count_errors(measured, limits), costs)
    judged.checks += _check_damage(measured)
    if baseline is not None:
        judged.checks += _check_baseline(measured, baseline)
    if baseline is not None and not judged.checks:
        judged.checks += _compare(judged, baseline, limits)
    judged.checks += _check_presence(measured, limits)
    judged.checks += _check_errors(judged, limits)
    for group in judged.groups:
        judged.checks += _check_group(measured.name, group, limits)
    for key, drop in judged.drops.items():
        judged.checks.append(_check_drop(measured.name, key, drop, limits))
    judged.checks += _check_cost(judged, limits)
    return judged


def _check_damage(measured: Measured) -> Iterator[Check]:
    for sentence in measured.damage:
        yield Check(
            thing=measured.name,
            condition="undamaged evidence",
            found=sentence,
            miss=Miss.DAMAGED,
        )
    for sentence in measured.unshown:
        yield Check(
            thing=measured.name,
            condition="published numbers that can be recomputed",
            found=sentence,
            miss=Miss.UNSHOWN,
        )


def _compare(judged: Judged, baseline: Measured, limits: Limits) -> Iterator[Check]:
    """Compare every group with the baseline; groups that cannot be compared are missed."""
    measured = judged.measured
    for key, trials in measured.groups.items():
        against = choose_baseline(key, measured, baseline)
        try:
            judged.drops[key] = compare_with(trials, against, baseline.name, limits)
        except StatisticsError as error:
            yield Check(
                thing=measured.name,
                group=key,
                condition=f"comparable with {baseline.name}",
                found=str(error),
                miss=Miss.SCORE,
            )


def _check_baseline(measured: Measured, baseline: Measured) -> Iterator[Check]:
    condition = f"a baseline to compare with: {baseline.name}"
    if baseline.damage:
        yield Check(
            thing=measured.name,
            condition=condition,
            found=baseline.damage[0],
            miss=Miss.DAMAGED,
        )
    elif baseline.unshown:
        yield Check(
            thing=measured.name,
            condition=condition,
            found=baseline.unshown[0],
            miss=Miss.UNSHOWN,
        )
    elif not baseline.trials:
        yield Check(
            thing=measured.name,
            condition=condition,
            found="none of its trials ran",
            miss=Miss.INCOMPLETE,
        )


def _check_presence(measured: Measured, limits: Limits) -> Iterator[Check]:
    name = measured.name
    if not measured.trials:
        yield Check(thing=name, condition="trials to judge", found="none ran", miss=Miss.INCOMPLETE)
    if limits.require_complete:
        missing = list_missing(measured)
        if measured.planned is None:
            missing.append("the ledger has no plan for it: pass --planned")
        found = "; ".join(missing) or f"all of {count_of(measured.run, 'trial')}"
        miss = Miss.INCOMPLETE if missing else None
        yield Check(thing=name, condition="complete", found=found, miss=miss)


def list_missing(measured: Measured) -> list[str]:
    """Why a run is not complete, in phrases."""
    found = []
    if measured.not_run is not None and measured.not_run > 0:
        found.append(f"{measured.not_run} of {measured.planned} planned trials did not run")
    if measured.broken:
        found.append(f"{count_of(measured.broken, 'trial')} cannot be read")
    if measured.withheld:
        found.append(f"{count_of(measured.withheld, 'trial')} withheld")
    if not measured.is_over:
        found.append("the job did not finish, or is still running")
    return found


def _check_errors(judged: Judged, limits: Limits) -> Iterator[Check]:
    if limits.max_errors is None:
        return
    errors = judged.errors
    is_met = limits.max_errors.allows(errors.count, errors.trials)
    yield Check(
        thing=judged.measured.name,
        condition=f"errors <= {limits.max_errors}",
        found=render_errors(errors),
        miss=None if is_met else Miss.ERRORS,
    )


def render_errors(errors: Errors) -> str:
    """The number of errors, and their kinds."""
    kinds = ", ".join(f"{kind} {n}" for kind, n in errors.kinds.items())
    return f"{errors.count} of {count_of(errors.trials, 'trial')}" + (
        f" ({kinds})" if kinds else ""
    )


def _check_group(thing: str, group: GroupNumbers, limits: Limits) -> Iterator[Check]:
    if limits.min_trials is not None:
        yield Check(
            thing=thing,
            group=group.key,
            condition=f"scored trials >= {limits.min_trials}",
            found=f"{group.scored} of {group.run} run",
            miss=None if group.scored >= limits.min_trials else Miss.INCOMPLETE,
        )
    floors = (
        ("mean", limits.min_mean, group.mean, group.mean_interval),
        ("pass rate", limits.min_pass_rate, group.pass_rate, group.pass_interval),
    )
    for label, floor, value, interval in floors:
        if floor is not None:
            yield Check(
                thing=thing,
                group=group.key,
                condition=f"{label} >= {floor!r}",
                found=f"{_render_beside(value, floor)} {render_ends(interval)}".rstrip(),
                # nan does not meet a limit either.
                miss=None if value >= floor else Miss.SCORE,
            )


def _render_beside(value: float, limit: float) -> str:
    """A number beside its limit: with all its digits if it would otherwise look equal to it."""
    shown = render_figure(value)
    return repr(value) if shown == render_figure(limit) and value != limit else shown


def _check_drop(thing: str, key: str, drop: Drop, limits: Limits) -> Check:
    most, paired = limits.max_drop or 0.0, drop.paired
    condition = f"drop against {drop.baseline} <= {most!r}"
    miss: Miss | None
    if paired.difference is None:
        miss, found = Miss.INCOMPLETE, "no task in common"
    else:
        # Tolerates the rounding of equal means.
        is_met = -paired.difference <= most + 1e-12
        miss, found = None if is_met else Miss.SCORE, _render_drop(drop, paired.difference, most)
    if left_out := _render_left_out(drop):
        found += f"; not compared: {left_out}"
    return Check(thing=thing, group=key, condition=condition, found=found, miss=miss)


def _render_drop(drop: Drop, difference: float, most: float) -> str:
    paired, interval = drop.paired, drop.paired.interval
    shown = ("+" if difference > 0 else "") + _render_beside(difference, -most)
    between = f" {render_ends(interval)}" if interval else ""
    return (
        f"{shown}{between} over {count_of(paired.n_tasks, 'task')}: {paired.wins} won, "
        f"{paired.ties} tied, {paired.losses} lost, p = {render_p(paired.p_value)}"
    )


def _render_left_out(drop: Drop) -> str:
    left_out = (
        (drop.paired.only_a, "only here"),
        (drop.paired.only_b, f"only in {drop.baseline}"),
        (drop.changed, "of another revision"),
    )
    return ", ".join(f"{count_of(len(tasks), 'task')} {what}" for tasks, what in left_out if tasks)


def _check_cost(judged: Judged, limits: Limits) -> Iterator[Check]:
    if limits.max_cost_usd is None:
        return
    total = judged.cost.total
    is_met = total is not None and total <= limits.max_cost_usd
    yield Check(
        thing=judged.measured.name,
        condition=f"cost <= {limits.max_cost_usd!r} USD",
        found=render_spent(judged.cost),
        miss=None if is_met else Miss.COST,
    )


def render_spent(cost: Spent) -> str:
    """Render a cost, with what is unknown of it."""
    if cost.total is not None:
        each = "" if cost.per_success is None else f", {render_money(cost.per_success)} per pass"
        return f"{render_money(cost.total)}{each}"
    trials = cost.n_known + cost.n_unknown
    if not cost.n_known:
        return f"unknown for all of {count_of(trials, 'trial')}"
    return (
        f"unknown for {cost.n_unknown} of {count_of(trials, 'trial')}; "
        f"the others cost {render_money(cost.known)}"
    )
