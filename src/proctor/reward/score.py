"""What one trial scored: Scored or Unscored, never None, never nan-for-missing, never a zero.

Harbor's rule that a missing reward counts as 0 is applied in `metric`, and nowhere else.
"""

import msgspec

from proctor.reward.number import Rewards


class Scored(msgspec.Struct, frozen=True):
    """The verifier gave these rewards, by key, in the order it wrote them. May be empty."""

    rewards: Rewards


class Unscored(msgspec.Struct, frozen=True):
    """There are no rewards, and this is why. It is not a zero."""

    reason: str
    """A sentence for a person."""
    error: str | None = None
    """Name of the exception class harbor would record, if one was raised."""
    code: str | None = None
    """Reason code of the taxonomy, carried from the error that knew it."""


type Score = Scored | Unscored
