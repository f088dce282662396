"""The limits of a gate, and the ways to miss them, each with its own exit code."""

from enum import StrEnum

import msgspec


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
    """Accepted errors: a number of trials, or a share of those that ran."""

    count: int | None = None
    share: float | None = None

    def __str__(self) -> str:
        return str(self.count) if self.count is not None else f"{self.share:.4g} of the trials"

    def allows(self, errors: int, trials: int) -> bool:
        """Whether this many errors among this many trials are accepted."""
        if self.count is not None:
            return errors <= self.count
        # Tolerates float rounding: 29 of 100 are 29 %.
        return errors <= (self.share or 0.0) * trials + 1e-9


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a gate; None: no limit."""

    min_mean: float | None = None
    min_pass_rate: float | None = None
    max_errors: MaxErrors | None = None
    max_cost_usd: float | None = None
    min_trials: int | None = None
    require_complete: bool = False
    max_drop: float | None = None
    """Largest accepted drop from a baseline."""
    pass_mark: float = 1.0
    """The lowest reward that passes."""
    reward_key: str | None = None
    """The reward that counts if a trial has several; None: the only one, else `reward`."""
    ignored_errors: frozenset[str] = frozenset()
    """Exceptions that are not errors if the trial has a reward."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, and whether it is met."""

    thing: str
    group: str | None = None
    """The group that it is about; null: the whole run."""
    condition: str
    found: str
    miss: Miss | None = None
    """Null: met."""

    @property
    def is_met(self) -> bool:
        """Whether what was asked for is there."""
        return self.miss is None


def gravest(checks: list[Check]) -> Miss | None:
    """The gravest miss; None if all conditions are met."""
    missed = {check.miss for check in checks}
    return next((miss for miss in Miss if miss in missed), None)
