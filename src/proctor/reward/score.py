"""What one trial scored: Scored or Unscored. A missing score is never None, nan or 0.

harbor's rule that a missing reward counts as 0 is applied only in `metric`.
"""

import msgspec

from proctor.reward.number import Rewards


class Scored(msgspec.Struct, frozen=True):
    """The rewards that the verifier wrote, by key, in file order. May be empty."""

    rewards: Rewards


class Unscored(msgspec.Struct, frozen=True):
    """No rewards, and the reason. Not the same as 0."""

    reason: str
    """A sentence for a person."""
    error: str | None = None
    """Name of the exception class harbor would record, if one was raised."""
    code: str | None = None
    """Reason code, taken from the error's class."""


type Score = Scored | Unscored
