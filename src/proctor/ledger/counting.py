"""Which trials count, and the numbers over them: used by every list, report and page.

Trials with one of these statuses do not count:

    superseded   another trial of the log replaces it, of the same experiment, dataset,
                 task, agent and model; of a withheld one, only the experiment is known
    withheld     its record was withheld: its score is unknown
    set aside    belongs to an earlier plan of its job, according to the job's files
    begun again  restarted: an earlier attempt, kept as `<trial>.attempt-N` beside the trial that
                 counts; if that trial is missing or withheld, the attempt itself counts, unless a
                 machine that ran the trial died: then no attempt at it counts

Every other trial counts. Of these:

    scored                   has rewards, under any key and of any value
    without a number         scored, but no finite reward is named `reward`, nor is it the only
                             one: then there is no mean
    not scored               has no reward, with a reason: missing (counted as 0) by harbor's rule
    errored                  raised an exception, whether or not it was scored

    listed  = counted + superseded + begun_again + set_aside + withheld
    planned = counted + withheld + not_run
    counted = scored + zero_by_missing, and no_number of the scored have no number
    counted = sealed + diagnostic + unsealed

These sums are checked. The official scores of a job or an experiment, with all its reward keys,
come from `proctor score`.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from proctor.errors import StatisticsError, WorkerLostError
from proctor.record.reasons import NOT_SCORED, Rewarded, outcome_of
from proctor.reward.number import exact_sum

SEALED: Final = "sealed"
DIAGNOSTIC: Final = "diagnostic"
UNSEALED: Final = "unsealed"
SUPERSEDED: Final = "superseded"
WITHHELD: Final = "withheld"
SET_ASIDE: Final = "set aside"
RESTARTED: Final = "begun again"
SHOWN: Final = {RESTARTED: "restarted", UNSEALED: "read from the job's files"}
"""Statuses that people read under another name than programs."""

NOT_COUNTED: Final = frozenset({SUPERSEDED, WITHHELD, SET_ASIDE, RESTARTED})
"""Statuses of trials that do not count."""
ATTEMPT: Final = ".attempt-"
"""In the id of every attempt that was kept beside its trial; a number follows."""
_IS_ATTEMPT: Final = re.compile(rf"{re.escape(ATTEMPT)}[0-9]+\Z")


class Countable(Rewarded, Protocol):
    """The fields of a trial that counting needs."""

    @property
    def status(self) -> str:
        """sealed, diagnostic or unsealed, or why it does not count."""

    @property
    def exception(self) -> str | None:
        """The exception it raised, whether or not it has a reward."""


def restarted_attempts(trials: Collection[tuple[str, str, bool]]) -> frozenset[str]:
    """Ids of kept attempts that do not count: the trial is there too, or a machine of it died.

    `trials` are id, status and whether the machine died (`is_lost`). An attempt that does not count
    for another reason is left out: every trial has one status.
    """
    # Kept attempts are rare, and boards pass 100,000 trials: skip the rest if there are none.
    kept = [
        (base, trial, status, has_died)
        for trial, status, has_died in trials
        if ATTEMPT in trial and (base := restarted_as(trial))
    ]
    if not kept:
        return frozenset()
    decided = {trial for trial, status, _ in trials if status != WITHHELD}
    # A trial whose machines died has no result: an attempt that its driver left is none either.
    decided.update(base for base, _, _, has_died in kept if has_died)
    return frozenset(
        trial for base, trial, status, _ in kept if status not in NOT_COUNTED and base in decided
    )


def is_lost(trial: Countable) -> bool:
    """Whether the machine that ran a trial died: it says nothing about the agent, and is no 0."""
    return trial.exception == WorkerLostError.__name__ and trial.reward is None


def restarted_as(trial: str) -> str | None:
    """The trial that an attempt was kept beside; None if the id is not that of an attempt."""
    base = _IS_ATTEMPT.sub("", trial)
    return base if base != trial else None


def counted_trials[Trial: Countable](trials: Iterable[Trial]) -> list[Trial]:
    """The trials that count, in the given order."""
    return [each for each in trials if each.status not in NOT_COUNTED]


def count_left_out(trials: Iterable[Countable]) -> dict[str, int]:
    """The number of trials that do not count, by status."""
    left_out = Counter(each.status for each in trials if each.status in NOT_COUNTED)
    return dict(sorted(left_out.items()))


def count_exceptions(trials: Iterable[Countable]) -> dict[str, int]:
    """How many trials that count raised each exception."""
    raised = (each.exception for each in trials if each.status not in NOT_COUNTED)
    return dict(sorted(Counter(each for each in raised if each is not None).items()))


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The denominators of a set of trials, and their two means."""

    planned: int | None
    """Trials to be run; null where no plan is known."""
    listed: int
    """Trials found, with any status."""
    superseded: int
    begun_again: int
    set_aside: int
    withheld: int
    counted: int
    """Trials that count."""
    sealed: int
    """Counted, with a complete record."""
    diagnostic: int
    """Counted, with a partial record."""
    unsealed: int
    """Counted, from a plain job directory."""
    scored: int
    """Counted, with rewards."""
    zero_by_missing: int
    """Counted, without a reward: 0 by harbor's rule."""
    no_number: int
    """How many of the scored have no finite `reward`."""
    reasons: dict[str, int]
    """Why rewards are missing, by reason code."""
    not_run: int | None
    """Planned and not found; null where no plan is known."""
    mean_errors_as_zero: float | None
    """By harbor's rule; null where nothing is counted, or a trial has no number."""
    mean_errors_excluded: float | None
    """Over the rewards there are; null where there are none."""

    @property
    def why_no_mean(self) -> str | None:
        """Why there is no mean by harbor's rule; None where there is one."""
        if not self.counted:
            return "no trial counts"
        if not self.no_number:
            return None
        return (
            f"{self.no_number:,} of its trials were scored without a finite reward named `reward`"
        )


def account_for(trials: Sequence[Countable], planned: int | None = None) -> Account:
    """Make the account of trials; means are added up in the given order."""
    counted = counted_trials(trials)
    status = Counter([each.status for each in trials])
    rewards = [each.reward for each in counted if each.reward is not None]
    reasons = Counter([str(each.reason_code) for each in counted if outcome_of(each) == NOT_SCORED])
    scored = len(counted) - reasons.total()
    no_number = scored - len(rewards)
    as_zero = None if no_number else _mean([each.reward or 0 for each in counted])
    account = Account(
        planned=planned,
        listed=len(trials),
        begun_again=status[RESTARTED],
        superseded=status[SUPERSEDED],
        set_aside=status[SET_ASIDE],
        withheld=status[WITHHELD],
        counted=len(counted),
        sealed=status[SEALED],
        diagnostic=status[DIAGNOSTIC],
        unsealed=status[UNSEALED],
        scored=scored,
        zero_by_missing=reasons.total(),
        no_number=no_number,
        reasons=dict(sorted(reasons.items())),
        not_run=None if planned is None else planned - len(counted) - status[WITHHELD],
        mean_errors_as_zero=as_zero,
        mean_errors_excluded=_mean(rewards),
    )
    check_account(account)
    return account


def _mean(values: Sequence[float]) -> float | None:
    return exact_sum(values) / len(values) if values else None


def check_account(account: Account) -> None:
    """Check that the parts add up.

    Raises:
        StatisticsError: they do not.
    """
    left_out = account.superseded + account.begun_again + account.set_aside + account.withheld
    records = account.sealed + account.diagnostic + account.unsealed
    sums = {
        "listed": (account.listed, account.counted + left_out),
        "counted": (account.counted, account.scored + account.zero_by_missing),
        "counted by record": (account.counted, records),
        "missing (counted as 0)": (account.zero_by_missing, sum(account.reasons.values())),
    }
    for name, (whole, parts) in sums.items():
        if whole != parts:
            raise StatisticsError(f"{whole} trials {name}, but their parts add up to {parts}")
    if account.not_run is not None and account.not_run < 0:
        there = account.counted + account.withheld
        raise StatisticsError(
            f"{account.planned} trials were planned but {there} found; decide which of them count "
            "first"
        )


_SAME: Final = ("experiment", "dataset", "task", "agent", "model")
_PAIRS: Final = (
    "SELECT one.record, other.record FROM remarks one JOIN remarks other USING (seq) "
    "WHERE one.kind = 'supersede' AND one.is_subject AND other.kind = 'supersede' "
    "AND NOT other.is_subject AND seq < ? ORDER BY seq"
)
_NAMED: Final = (
    "SELECT record, experiment_id, recorded_dataset, task_id, agent, model, status = 'withheld' "
    "FROM trials WHERE seq < ? AND record IN (SELECT record FROM remarks WHERE kind = 'supersede')"
)
_EVERYTHING: Final = 1 << 62
SET_STATUS: Final = (
    "UPDATE trials SET status = CASE WHEN ? THEN 'superseded' "
    "WHEN completeness = 'complete' THEN 'sealed' ELSE 'diagnostic' END "
    "WHERE record = ? AND status <> 'withheld'"
)
"""Sets the status of a trial: whether it is superseded, and its record."""


class Replaceable(msgspec.Struct, frozen=True):
    """The fields of a trial that decide which trials may replace it."""

    experiment: str
    dataset: str | None
    task: str | None
    agent: str | None
    model: str | None
    is_withheld: bool = False
    """Whether all but the experiment is unknown."""


def judge_supersessions(
    pairs: Iterable[tuple[str, str]], trials: Mapping[str, Replaceable]
) -> dict[str, str | None]:
    """Why each supersession does not count, by superseded record; None if it counts.

    `pairs` are records with their replacements, in the order of the log: the last one counts.
    Records that are not in `trials` are left out.
    """
    # Later pairs overwrite earlier ones: the last supersession of a record counts.
    replaced = dict(pairs)
    return {
        record: _find_refusal(record, replaced, trials) for record in replaced if record in trials
    }


def _find_refusal(
    record: str, replaced: Mapping[str, str], trials: Mapping[str, Replaceable]
) -> str | None:
    last = find_replacement(record, replaced)
    if last is None:
        return "the supersessions form a cycle"
    if last not in trials:
        return "the trial that replaces it is not in the ledger"
    subject, other = trials[record], trials[last]
    # Of a withheld trial only the ids are left to compare.
    is_known = not (subject.is_withheld or other.is_withheld)
    for what in _SAME if is_known else _SAME[:1]:
        if getattr(subject, what) != getattr(other, what):
            return f"the trial that replaces it is of another {what}"
    return None


def find_replacement(record: str, replaced: Mapping[str, str]) -> str | None:
    """The record at the end of a chain of supersessions; None if it is a cycle."""
    seen, last = {record}, replaced[record]
    while last in replaced and last not in seen:
        seen.add(last)
        last = replaced[last]
    return last if last not in seen else None


def read_supersessions(
    connection: sqlite3.Connection, size: int = _EVERYTHING
) -> dict[str, str | None]:
    """`judge_supersessions` for an index, at a size of the log."""
    pairs = connection.execute(_PAIRS, (size,)).fetchall()
    if not pairs:
        return {}
    named = connection.execute(_NAMED, (size,))
    trials = {record: Replaceable(*facts) for record, *facts in named}
    return judge_supersessions(pairs, trials)


def update_statuses(connection: sqlite3.Connection) -> None:
    """Set the present status of every trial that a supersession names."""
    for record, refusal in read_supersessions(connection).items():
        connection.execute(SET_STATUS, (refusal is None, record))
