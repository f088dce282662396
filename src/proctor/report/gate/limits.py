"""What a run is asked for, and the ways to miss it, each with an exit code of its own."""

from enum import StrEnum

import msgspec


class Miss(StrEnum):
    """How a gate is not met. Of several the gravest decides, and they stand in that order."""

    DAMAGED = "damaged"
    """The ledger or the evidence is not what was written: no number can be trusted."""
    UNSHOWN = "unshown"
    """A published number cannot be recomputed from the evidence."""
    INCOMPLETE = "incomplete"
    """Trials are missing, or too few to say anything."""
    ERRORS = "errors"
    """Too many trials failed for a reason other than a wrong answer."""
    SCORE = "score"
    """A number is below its floor, or dropped too far."""
    COST = "cost"
    """It cost too much, or nobody knows what it cost."""

    @property
    def exit_code(self) -> int:
        """What a program sees."""
        return _CODES[self]


_CODES = {
    Miss.SCORE: 1,
    Miss.INCOMPLETE: 3,
    Miss.ERRORS: 4,
    Miss.DAMAGED: 5,
    Miss.COST: 6,
    Miss.UNSHOWN: 7,
}


class MaxErrors(msgspec.Struct, frozen=True):
    """How many errors are let pass: a number of trials, or a share of those that ran."""

    count: int | None = None
    share: float | None = None

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{self.share:.4g} of the trials"

    def allows(self, errors: int, trials: int) -> bool:
        """Whether so many errors among so many trials are let pass."""
        if self.count is not None:
            return errors <= self.count
        # 29 of 100 are 29 %, whatever the floats say.
        return errors <= (self.share or 0.0) * trials + 1e-9


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for; None is not asked for."""

    min_mean: float | None = None
    min_pass_rate: float | None = None
    max_errors: MaxErrors | None = None
    max_cost_usd: float | None = None
    min_trials: int | None = None
    require_complete: bool = False
    max_drop: float | None = None
    """Against a baseline."""
    pass_mark: float = 1.0
    """The least reward that is a pass."""
    reward_key: str | None = None
    """Which reward counts where a trial has several; None: the only one, else `reward`."""
    ignored_errors: frozenset[str] = frozenset()
    """Exceptions that are no error where the trial has a reward all the same."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, and whether it is met."""

    thing: str
    group: str | None = None
    """The group that it is about; null: all of the thing."""
    condition: str
    found: str
    miss: Miss | None = None
    """Null: met."""

    @property
    def is_met(self) -> bool:
        """Whether what was asked for is there."""
        return self.miss is None


def gravest(checks: list[Check]) -> Miss | None:
    """The miss that decides; None where all is met."""
    missed = {check.miss for check in checks}
    return next((miss for miss in Miss if miss in missed), None)
