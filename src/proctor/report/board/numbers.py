"""The numbers of one row, each with what it rests on."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proctor.ledger.counting import Account, account_for, count_exceptions, counted_trials
from proctor.ledger.row import TrialRow
from proctor.report.policy.grade import grade_attempt
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.efficiency import PASS_MARK, Spent, add_up, is_success
from proctor.report.statistics.intervals import Interval, wilson
from proctor.report.statistics.passk import PassEstimate, pass_at


class Advice(msgspec.Struct, frozen=True):
    """How far a second model was asked."""

    trials: int
    """Counted trials in which it was."""
    calls: int
    unknown: int
    """Counted trials that do not say."""


class RowNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says."""

    account: Account
    """What became of its trials."""
    errored: int
    """Counted trials in which something broke; they may have a score all the same."""
    exceptions: dict[str, int]
    """What broke, and how often."""
    n_tasks: int
    score: float | None
    """Mean reward by harbor's rule, a missing one counted as 0; null: see why_none."""
    why_none: str | None
    """Why there is no score."""
    score_interval: Interval | None
    """95 %, by drawing whole tasks; null below 2 tasks."""
    score_excluding: float | None
    """Mean over the scored trials alone; null where it is the score."""
    passed: int
    """Counted trials with a reward of 1 or more."""
    pass_rate: float | None
    pass_interval: Interval | None
    """95 %, Wilson's."""
    pass_at_k: PassEstimate | None
    """With k the attempts that every task has; null where one has a single attempt."""
    cost: Spent
    """US dollars of all counted trials."""
    advice: Advice
    findings: dict[str, int]
    """Codes of integrity findings, each with the counted trials that have it."""
    reviews: dict[str, int]
    """Verdicts, each with the counted trials whose latest review it is."""
    below_grade: dict[str, int]
    """Why counted trials are not of leaderboard grade, as far as their records tell."""

    @property
    def n_reviewed(self) -> int:
        """Counted trials that somebody reviewed."""
        return sum(self.reviews.values())


def count_row(attempts: Sequence[TrialRow]) -> RowNumbers:
    """The numbers of a row's attempts, in the order given.

    Raises:
        StatisticsError: they do not add up.
    """
    account = account_for(attempts)
    counted = counted_trials(attempts)
    by_task = _rewards_by_task(counted)
    why_none = account.why_no_mean
    passed = sum(map(is_success, counted))
    n = len(counted)
    exceptions = count_exceptions(counted)
    score, excluding = account.mean_errors_as_zero, account.mean_errors_excluded
    return RowNumbers(
        account=account,
        errored=sum(exceptions.values()),
        exceptions=exceptions,
        n_tasks=len(by_task),
        score=score,
        why_none=why_none,
        score_interval=None if why_none else cluster_bootstrap(list(by_task.values())),
        score_excluding=None if why_none or excluding == score else excluding,
        passed=passed,
        pass_rate=None if why_none else passed / n,
        pass_interval=None if why_none else wilson(passed, n),
        pass_at_k=None if why_none else _estimate_pass(by_task),
        cost=add_up([each.cost_usd for each in counted], passed),
        advice=_count_advice(counted),
        findings=_count_each(code for each in counted for code in each.findings),
        reviews=_count_each(each.review for each in counted if each.review is not None),
        below_grade=_count_below_grade(counted),
    )


def _rewards_by_task(counted: Sequence[TrialRow]) -> dict[str | None, list[float]]:
    found: defaultdict[str | None, list[float]] = defaultdict(list)
    for attempt in counted:
        # Harbor's rule, as in the score that the interval belongs to: a missing reward is 0.
        found[attempt.task_id].append(attempt.reward or 0.0)
    return found


def _estimate_pass(by_task: Mapping[str | None, Sequence[float]]) -> PassEstimate | None:
    k = min(map(len, by_task.values()))
    if k == 1:
        return None
    tasks = {task or "": [reward >= PASS_MARK for reward in by_task[task]] for task in by_task}
    return pass_at(k, tasks)


def _count_advice(counted: Sequence[TrialRow]) -> Advice:
    calls = [each.advisor_calls for each in counted]
    known = [number for number in calls if number is not None]
    return Advice(sum(number > 0 for number in known), sum(known), len(calls) - len(known))


def _count_below_grade(counted: Sequence[TrialRow]) -> dict[str, int]:
    # In a row, attempts at a task are alike in all else that the grade asks for: one is looked at.
    alike: defaultdict[tuple[object, ...], list[TrialRow]] = defaultdict(list)
    for each in counted:
        found_in = (each.findings, each.review) if each.findings else None
        alike[each.task_id, each.reward is None, found_in].append(each)
    found: Counter[str] = Counter()
    for attempts in alike.values():
        for code in grade_attempt(attempts[0]):
            found[str(code)] += len(attempts)
    return dict(sorted(found.items()))


def _count_each(things: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(things).items()))
