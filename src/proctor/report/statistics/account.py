"""What became of the attempts that a number rests on, and the two means that one can ask for.

    listed  = counted + superseded + begun_again + set_aside + withheld
    planned = counted + withheld + not_run
    counted = scored + zero_by_missing + no_number
    zero_by_missing = the sum over its reasons
    counted = sealed + diagnostic + unsealed

They add up, or there is no account. The means here are for boards and comparisons; the official one
of a job or an experiment, with several reward keys and all, is `proctor score`'s. A trial that was
marked with something else than a finite `reward` is not 0 by any rule: with one, there is no mean.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from proctor.errors import StatisticsError
from proctor.report.attempt import UNSEALED, Attempt
from proctor.report.counting import BEGUN_AGAIN, SET_ASIDE, SUPERSEDED, WITHHELD, leave_out
from proctor.reward.number import exact_sum

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
    set_aside: int
    """Not counted: of an earlier plan of its job."""
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
    no_number: int
    """Counted, and marked with something else than a finite `reward`; no rule makes it 0."""
    reasons: dict[str, int]
    """Why rewards are missing, by reason code."""
    not_run: int | None
    """Planned and not there; null where no plan is known."""
    mean_errors_as_zero: float | None
    """Harbor's rule; null where nothing is counted, or one has no number."""
    mean_errors_excluded: float | None
    """Over the scored alone; null where there are none."""

    @property
    def why_no_mean(self) -> str | None:
        """Why there is no mean by harbor's rule; None where there is one."""
        if not self.counted:
            return "no trial counts"
        if not self.no_number:
            return None
        return (
            f"{self.no_number:,} of its trials were marked, with no finite reward called `reward`"
        )


def account_for(attempts: Sequence[Attempt], planned: int | None = None) -> Account:
    """The account of attempts; means are added up in the order given.

    Raises:
        StatisticsError: the parts do not add up: more are there than were planned, or a status is
            unknown.
    """
    counted, left_out = leave_out(attempts)
    status = Counter([each.status for each in counted])
    rewards = [each.reward for each in counted if each.reward is not None]
    reasons = Counter([each.reason for each in counted if each.reward is None and each.reason])
    withheld = left_out.get(WITHHELD, 0)
    no_number = len(counted) - len(rewards) - reasons.total()
    as_zero = None if no_number else _mean([each.reward or 0 for each in counted])
    account = Account(
        planned=planned,
        listed=len(attempts),
        begun_again=left_out.get(BEGUN_AGAIN, 0),
        superseded=left_out.get(SUPERSEDED, 0),
        set_aside=left_out.get(SET_ASIDE, 0),
        withheld=withheld,
        counted=len(counted),
        sealed=status[SEALED],
        diagnostic=status[DIAGNOSTIC],
        unsealed=status[UNSEALED],
        scored=len(rewards),
        zero_by_missing=reasons.total(),
        no_number=no_number,
        reasons=dict(sorted(reasons.items())),
        not_run=None if planned is None else planned - len(counted) - withheld,
        mean_errors_as_zero=as_zero,
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
    left_out = account.superseded + account.begun_again + account.set_aside + account.withheld
    marked = account.scored + account.zero_by_missing + account.no_number
    records = account.sealed + account.diagnostic + account.unsealed
    sums = {
        "listed": (account.listed, account.counted + left_out),
        "counted": (account.counted, marked),
        "counted by record": (account.counted, records),
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
