"""The scores of a set of trials: both means, pass rate, pass@k and pass^k, cost."""

from collections.abc import Mapping, Sequence
from statistics import median_low

import msgspec

from proctor.ledger.counting import Account, account_for
from proctor.ledger.row import TrialRow
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.efficiency import Efficiency, efficiency_of, is_success
from proctor.report.statistics.intervals import Interval, wilson
from proctor.report.statistics.passk import PassEstimate, pass_all, pass_at
from proctor.report.statistics.variance import Spread, spread_of
from proctor.reward.passk import eligible_ks

type Tasks = Mapping[str, Sequence[TrialRow]]


class Scores(msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a set of trials."""

    account: Account
    """Denominators and means."""
    tasks: int
    interval: Interval | None
    """Of the mean over scored trials, by resampling tasks; null below 2 tasks."""
    interval_errors_as_zero: Interval | None
    """Of the mean with missing rewards as 0; null if there is no such mean."""
    passed: int
    """Trials with a reward of 1 or more."""
    pass_interval: Interval | None
    """Wilson's, of the share of trials that passed; null if one has no number."""
    pass_at: tuple[PassEstimate, ...]
    """Trials without a score count as not passed; empty if one has no number."""
    pass_all: tuple[PassEstimate, ...]
    spread: Spread
    """Of the scored trials, within and between tasks."""
    efficiency: Efficiency


def score_tasks(tasks: Tasks) -> Scores:
    """Compute the scores of trials by task."""
    rows = [row for found in tasks.values() for row in found]
    passes = {task: [is_success(each) for each in found] for task, found in tasks.items()}
    passed = sum(map(sum, passes.values()))
    account = account_for(rows)
    has_mean = account.why_no_mean is None
    ks = choose_ks([len(found) for found in tasks.values()]) if has_mean else []
    as_zero = cluster_bootstrap(list(all_rewards(tasks).values())) if has_mean else None
    return Scores(
        account=account,
        tasks=len(tasks),
        interval=cluster_bootstrap(list(scored_rewards(tasks).values())),
        interval_errors_as_zero=as_zero,
        passed=passed,
        pass_interval=wilson(passed, len(rows)) if has_mean else None,
        pass_at=tuple(pass_at(k, passes) for k in ks),
        pass_all=tuple(pass_all(k, passes) for k in ks),
        spread=spread_of(scored_rewards(tasks)),
        efficiency=efficiency_of(rows),
    )


def choose_ks(sizes: Sequence[int]) -> list[int]:
    """1, and harbor's ks up to the number of attempts that at least half of the tasks have."""
    return [1, *eligible_ks(median_low(sizes))] if sizes else []


def scored_rewards(tasks: Tasks) -> dict[str, list[float]]:
    """Rewards by task, without trials that have no score."""
    return {
        task: [each.reward for each in found if each.reward is not None]
        for task, found in tasks.items()
    }


def all_rewards(tasks: Tasks) -> dict[str, list[float]]:
    """Rewards by task, with missing ones as 0: harbor's rule."""
    return {task: [each.reward or 0.0 for each in found] for task, found in tasks.items()}
