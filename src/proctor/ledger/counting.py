"""Which trials count and what they come to: the one rule of every list, number and page.

    superseded   another trial replaces it (`ledger.supersession` says which replacements count)
    withheld     its record was taken out: what it scored is not known
    set aside    of an earlier plan of its job, as the job's own files say
    begun again  restarted: an earlier attempt, kept as `<trial>.attempt-N` beside the trial that
                 counts; one whose own trial is not there, or was withheld, counts itself

Every other trial counts. Of these:

    scored            has a reward
    missing (counted as 0)   has none, with a reason: 0 by harbor's rule
    no number         scored with something else than a finite `reward`: there is no mean then
    errored           raised an exception, whether or not it was scored

    listed  = counted + superseded + begun_again + set_aside + withheld
    planned = counted + withheld + not_run
    counted = scored + zero_by_missing + no_number
    counted = sealed + diagnostic + unsealed

They add up, or there is no account. The official numbers of a job or an experiment, with several
reward keys and all, are `proctor score`'s.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

import msgspec

from proctor.errors import StatisticsError
from proctor.reward.number import exact_sum

SEALED: Final = "sealed"
DIAGNOSTIC: Final = "diagnostic"
UNSEALED: Final = "unsealed"
SUPERSEDED: Final = "superseded"
WITHHELD: Final = "withheld"
SET_ASIDE: Final = "set aside"
RESTARTED: Final = "begun again"
SHOWN: Final = {RESTARTED: "restarted"}
"""Statuses that people read in other words than programs do."""

NOT_COUNTED: Final = frozenset({SUPERSEDED, WITHHELD, SET_ASIDE, RESTARTED})
"""Statuses of trials that are in no number."""
KEPT: Final = ".attempt-"
"""What every id of an attempt has that was kept beside its trial; a number follows."""
_ATTEMPT: Final = re.compile(r"\.attempt-[0-9]+\Z")


class Countable(Protocol):
    """As much of a trial as counting needs."""

    @property
    def status(self) -> str:
        """sealed, diagnostic or unsealed, or why it is in no number."""
        ...

    @property
    def reward(self) -> float | None:
        """None: not scored."""
        ...

    @property
    def reason_code(self) -> str | None:
        """Why it has no reward."""
        ...

    @property
    def exception(self) -> str | None:
        """What it raised, reward or not."""
        ...


def find_restarted(trials: Collection[tuple[str, str]]) -> frozenset[str]:
    """Ids of kept attempts whose own trial is among the trials of one experiment.

    `trials` are ids and statuses. An attempt that is in no number for another reason is not among
    them: every trial has one status.
    """
    # Hardly any trial is one, and boards ask for a hundred thousand.
    kept = [trial for trial, status in trials if KEPT in trial and status not in NOT_COUNTED]
    if not kept:
        return frozenset()
    there = {trial for trial, status in trials if status != WITHHELD}
    return frozenset(trial for trial in kept if restarted_as(trial) in there)


def restarted_as(trial: str) -> str | None:
    """The trial that an attempt was kept beside; None where the id is no such attempt's."""
    base = _ATTEMPT.sub("", trial)
    return base if base != trial else None


def counted_trials[Trial: Countable](trials: Iterable[Trial]) -> list[Trial]:
    """Those that are in the numbers, in the order given."""
    return [each for each in trials if each.status not in NOT_COUNTED]


def count_left_out(trials: Iterable[Countable]) -> dict[str, int]:
    """How many trials are in no number, by why."""
    left_out = Counter(each.status for each in trials if each.status in NOT_COUNTED)
    return dict(sorted(left_out.items()))


def count_exceptions(trials: Iterable[Countable]) -> dict[str, int]:
    """The exceptions of the trials that count: their sum is the number of errored trials."""
    raised = (each.exception for each in trials if each.status not in NOT_COUNTED)
    return dict(sorted(Counter(each for each in raised if each is not None).items()))


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The denominators of a set of trials, and their two means."""

    planned: int | None
    """That were to be run; null where nobody says."""
    listed: int
    """That are there, in whatever state."""
    superseded: int
    begun_again: int
    set_aside: int
    withheld: int
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
    """Counted, and scored with something else than a finite `reward`."""
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


def account_for(trials: Sequence[Countable], planned: int | None = None) -> Account:
    """The account of trials; means are added up in the order given.

    Raises:
        StatisticsError: the parts do not add up: more are there than were planned, or a status is
            unknown.
    """
    counted = counted_trials(trials)
    status = Counter([each.status for each in trials])
    rewards = [each.reward for each in counted if each.reward is not None]
    unscored = [each.reason_code for each in counted if each.reward is None]
    reasons = Counter([reason for reason in unscored if reason])
    no_number = len(counted) - len(rewards) - reasons.total()
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
        scored=len(rewards),
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
        "missing (counted as 0)": (account.zero_by_missing, sum(account.reasons.values())),
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
