"""The clocks of a trial: a wall clock for its files, and a monotonic one to check it."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

LARGEST_DRIFT_SEC = 2.0
"""Largest disagreement of the two clocks over a phase: time servers slew the clock, they do not
step it this far.
"""


def _wall() -> datetime:
    return datetime.now(UTC)


class Clock(msgspec.Struct, frozen=True):
    """Source of the time."""

    wall: Callable[[], datetime] = _wall
    """Now, in UTC."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds since an arbitrary moment; never adjusted."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return self.wall()

    def local_now(self) -> datetime:
        """The local wall clock without a zone, as harbor dates an exception."""
        return self.wall().astimezone().replace(tzinfo=None)

    def read(self) -> "Reading":
        """Both clocks at once."""
        return Reading(self.wall(), self.monotonic())


class Reading(NamedTuple):
    """Both clocks at one moment."""

    wall: datetime
    monotonic: float


SYSTEM = Clock()


def find_jump(before: Reading, after: Reading) -> float | None:
    """Seconds by which the wall clock jumped ahead (negative: back), if above the limit."""
    by_wall = (after.wall - before.wall).total_seconds()
    drift = by_wall - (after.monotonic - before.monotonic)
    return drift if abs(drift) > LARGEST_DRIFT_SEC else None
