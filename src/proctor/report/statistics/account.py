"""What became of the attempts that a number rests on, and the two means that one can ask for.

    listed  = counted + superseded + begun_again + withheld
    planned = counted + withheld + not_run
    counted = scored + zero_by_missing
    zero_by_missing = the sum over its reasons
    counted = sealed + diagnostic + unsealed

They add up, or there is no account. The means here are for boards and comparisons; the official one
of a job or an experiment, with several reward keys and all, is `proctor score`'s.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from proctor.errors import StatisticsError
from proctor.ledger.claims.standing import KEPT, begun_again_as
from proctor.report.attempt import UNSEALED, Attempt
from proctor.reward.number import exact_sum

NO_REASON = "unknown"
"""What stands for the reason of an attempt that has neither a score nor a reason."""

SUPERSEDED, WITHHELD = "superseded", "withheld"
SEALED, DIAGNOSTIC = "sealed", "diagnostic"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The denominators of a set of attempts."""

    planned: int | None
    """That were to be run; null where nobody says."""
    listed: int
    """That are there, in whatever state."""
    superseded: int
    """Not counted: another stands in for it."""
    begun_again: int
    """Not counted: an earlier attempt, kept beside the trial that counts."""
    withheld: int
    """Not counted: its record was taken out, so nobody can say what it scored."""
    counted: int
    """In the numbers."""
    sealed: int
    """Counted, with a complete record."""
    diagnostic: int
    """Counted, with a partial record."""
    unsealed: int
    """Counted, from a plain job directory."""
    scored: int
    """Counted, with a reward."""
    zero_by_missing: int
    """Counted, without a reward: 0 by harbor's rule."""
    reasons: dict[str, int]
    """Why those have none, by reason code."""
    not_run: int | None
    """Planned and not there; null where no plan is known."""
    mean_errors_as_zero: float | None
    """Harbor's rule; null where nothing is counted."""
    mean_errors_excluded: float | None
    """Over the scored alone; null where there are none."""


def counted_attempts(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Those that are in the numbers: not superseded, not withheld, and not begun again."""
    counted = [each for each in attempts if each.status not in (SUPERSEDED, WITHHELD)]
    # Hardly any trial is one, and boards ask for a hundred thousand.
    kept = {each.record for each in counted if KEPT in each.trial and begun_again_as(each.trial)}
    if not kept:
        return counted
    there = {(each.experiment, each.trial) for each in attempts}
    return [
        each
        for each in counted
        if each.record not in kept or (each.experiment, begun_again_as(each.trial)) not in there
    ]


def account_for(attempts: Sequence[Attempt], planned: int | None = None) -> Account:
    """The account of attempts; means are added up in the order given.

    Raises:
        StatisticsError: the parts do not add up: more are there than were planned, or a status is
            unknown.
    """
    left_out = Counter([each.status for each in attempts])
    counted = counted_attempts(attempts)
    is_whole = len(counted) == len(attempts)
    status = left_out if is_whole else Counter(each.status for each in counted)
    rewards = [each.reward for each in counted if each.reward is not None]
    reasons = Counter(each.reason or NO_REASON for each in counted if each.reward is None)
    there = len(counted) + left_out[WITHHELD]
    not_counted = left_out[SUPERSEDED] + left_out[WITHHELD]
    account = Account(
        planned=planned,
        listed=len(attempts),
        begun_again=len(attempts) - len(counted) - not_counted,
        superseded=left_out[SUPERSEDED],
        withheld=left_out[WITHHELD],
        counted=len(counted),
        sealed=status[SEALED],
        diagnostic=status[DIAGNOSTIC],
        unsealed=status[UNSEALED],
        scored=len(rewards),
        zero_by_missing=len(counted) - len(rewards),
        reasons=dict(sorted(reasons.items())),
        not_run=None if planned is None else planned - there,
        mean_errors_as_zero=_mean([each.reward or 0 for each in counted]),
        mean_errors_excluded=_mean(rewards),
    )
    check_account(account)
    return account


def _mean(values: Sequence[float]) -> float | None:
    return exact_sum(values) / len(values) if values else None


def check_account(account: Account) -> None:
    """See that the parts add up.

    Raises:
        StatisticsError: they do not.
    """
    sums = {
        "listed": (
            account.listed,
            account.counted + account.superseded + account.begun_again + account.withheld,
        ),
        "counted": (account.counted, account.scored + account.zero_by_missing),
        "counted by record": (
            account.counted,
            account.sealed + account.diagnostic + account.unsealed,
        ),
        "zero by missing": (account.zero_by_missing, sum(account.reasons.values())),
    }
    for name, (whole, parts) in sums.items():
        if whole != parts:
            raise StatisticsError(f"{whole} attempts {name}, but their parts make {parts}")
    if account.not_run is not None and account.not_run < 0:
        there = account.counted + account.withheld
        raise StatisticsError(
            f"{account.planned} attempts were planned but {there} are there; which of them count "
            "has to be said first"
        )
