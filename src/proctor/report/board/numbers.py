"""The numbers of one row."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proctor.harbor.stats import count_errored
from proctor.ledger.counting import (
    NOT_COUNTED,
    Account,
    account_for,
    count_exceptions,
    counted_trials,
)
from proctor.ledger.row import TrialRow
from proctor.report.policy.grade import grade_trial
from proctor.report.statistics.bootstrap import cluster_bootstrap
from proctor.report.statistics.efficiency import PASS_MARK, Spent, add_up, is_success
from proctor.report.statistics.intervals import Interval, wilson
from proctor.report.statistics.passk import PassEstimate, pass_at


class Advice(msgspec.Struct, frozen=True):
    """How often a second model was consulted."""

    trials: int
    """Counted trials with such calls."""
    calls: int
    unknown: int
    """Counted trials without this information."""


class RowNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a row."""

    account: Account
    """Denominators and means."""
    errored: int
    """Counted trials that raised an exception; they may have a score as well."""
    exceptions: dict[str, int]
    """The exceptions, with their numbers."""
    n_tasks: int
    score: float | None
    """Mean reward by harbor's rule, with missing rewards as 0; null: see why_none."""
    why_none: str | None
    """Why there is no score."""
    score_interval: Interval | None
    """95 %, by resampling whole tasks; null below 2 tasks."""
    score_excluding: float | None
    """Mean over the scored trials only; null if it equals the score."""
    passed: int
    """Counted trials with a reward of 1 or more."""
    pass_rate: float | None
    pass_interval: Interval | None
    """95 %, Wilson's."""
    pass_at_k: PassEstimate | None
    """k is the smallest number of attempts at a task; null if that is 1."""
    cost: Spent
    """US dollars of all counted trials."""
    advice: Advice
    findings: dict[str, int]
    """Codes of integrity findings, with the number of counted trials that have them."""
    reviews: dict[str, int]
    """Latest review verdicts, with the number of counted trials that have them."""
    below_grade: dict[str, int]
    """Why counted trials are not of leaderboard grade, as far as their records show."""

    @property
    def n_reviewed(self) -> int:
        """Counted trials that were reviewed."""
        return sum(self.reviews.values())


def describe_numbers(numbers: RowNumbers) -> dict[str, Any]:
    """The numbers of a row in the JSON of a board."""
    account = numbers.account
    return {
        "score": numbers.score,
        "why_none": numbers.why_none,
        "score_interval": msgspec.to_builtins(numbers.score_interval),
        "score_errors_excluded": account.mean_errors_excluded,
        "passed": numbers.passed,
        "pass_rate": numbers.pass_rate,
        "pass_interval": msgspec.to_builtins(numbers.pass_interval),
        "pass_at_k": msgspec.to_builtins(numbers.pass_at_k),
        "n_tasks": numbers.n_tasks,
        "denominators": {
            "listed": account.listed,
            "counted": account.counted,
            "superseded": account.superseded,
            "begun_again": account.begun_again,
            "scored": account.scored,
            "zero_by_missing": account.zero_by_missing,
            "no_number": account.no_number,
            "reasons": account.reasons,
            "errored": numbers.errored,
            "exceptions": numbers.exceptions,
        },
        "cost_usd": {
            "total": numbers.cost.total,
            "known": numbers.cost.known if numbers.cost.n_known else None,
            "n_known": numbers.cost.n_known,
            "n_unknown": numbers.cost.n_unknown,
            "per_success": numbers.cost.per_success,
        },
        "advisor": msgspec.to_builtins(numbers.advice),
        "findings": numbers.findings,
        "reviews": {**numbers.reviews, "none": account.counted - numbers.n_reviewed},
    }


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The part of a trial that the numbers need: a board of a million trials keeps no more."""

    seq: int
    status: str
    reward: float | None
    reason_code: str | None
    exception: str | None
    task_id: str | None
    cost_usd: float | None
    advisor_calls: int | None
    findings: tuple[str, ...]
    review: str | None
    below_grade: tuple[str, ...]
    """Why it is not of leaderboard grade; empty if it is, or does not count."""


class Reducing:
    """Reduces the trials of one row to what is counted."""

    def __init__(self) -> None:
        self._grades: dict[tuple[object, ...], tuple[str, ...]] = {}
        # Equal texts of a million trials are one object.
        self._texts: dict[str | None, str | None] = {}

    def reduce(self, row: TrialRow) -> Counted:
        """The part of a trial that is counted."""
        same = self._texts.setdefault
        return Counted(
            row.seq,
            same(row.status, row.status) or "",
            row.reward,
            same(row.reason_code, row.reason_code),
            same(row.exception, row.exception),
            same(row.task_id, row.task_id),
            row.cost_usd,
            row.advisor_calls,
            row.findings,
            row.review,
            () if row.status in NOT_COUNTED else self._grade(row),
        )

    def _grade(self, row: TrialRow) -> tuple[str, ...]:
        # Trials of a task in the same row are alike in everything else that the grade depends on:
        # one of them is graded for all.
        found_in = (row.findings, row.review) if row.findings else None
        key = (row.task_id, row.reward is None, found_in)
        known = self._grades.get(key)
        if known is None:
            known = self._grades[key] = tuple(str(code) for code in grade_trial(row))
        return known


def count_row(rows: Iterable[TrialRow]) -> RowNumbers:
    """The numbers of a row's trials, in the given order."""
    return count_reduced(list(map(Reducing().reduce, rows)))


def count_reduced(rows: Sequence[Counted]) -> RowNumbers:
    """`count_row` of reduced trials."""
    account = account_for(rows)
    counted = counted_trials(rows)
    by_task = _rewards_by_task(counted)
    why_none = account.why_no_mean
    passed = sum(map(is_success, counted))
    n = len(counted)
    score, excluding = account.mean_errors_as_zero, account.mean_errors_excluded
    return RowNumbers(
        account=account,
        errored=count_errored(counted),
        exceptions=count_exceptions(counted),
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
        below_grade=_count_each(code for each in counted for code in each.below_grade),
    )


def _rewards_by_task(counted: Sequence[Counted]) -> dict[str | None, list[float]]:
    found: defaultdict[str | None, list[float]] = defaultdict(list)
    for row in counted:
        # Harbor's rule, as in the score that the interval belongs to: a missing reward is 0.
        found[row.task_id].append(row.reward or 0.0)
    return found


def _estimate_pass(by_task: Mapping[str | None, Sequence[float]]) -> PassEstimate | None:
    k = min(map(len, by_task.values()))
    if k == 1:
        return None
    tasks = {task or "": [reward >= PASS_MARK for reward in by_task[task]] for task in by_task}
    return pass_at(k, tasks)


def _count_advice(counted: Sequence[Counted]) -> Advice:
    calls = [each.advisor_calls for each in counted]
    known = [number for number in calls if number is not None]
    return Advice(sum(number > 0 for number in known), sum(known), len(calls) - len(known))


def _count_each(things: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(things).items()))
