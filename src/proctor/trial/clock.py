"""Time as a trial sees it: a wall clock for its files, and one that never jumps to check it by."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

LARGEST_DRIFT_SEC = 2.0
"""Seconds that the two clocks may disagree over a phase: time servers nudge, they do not jump."""


def _wall() -> datetime:
    return datetime.now(UTC)


class Clock(msgspec.Struct, frozen=True):
    """Where the time comes from."""

    wall: Callable[[], datetime] = _wall
    """Now, in UTC."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds since some moment; never turned back or forward."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return self.wall()

    def local_now(self) -> datetime:
        """The wall clock in local time, without a zone: that is how harbor dates an exception."""
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
    """Seconds by which the wall clock ran ahead (negative: fell back), if they are too many."""
    by_wall = (after.wall - before.wall).total_seconds()
    drift = by_wall - (after.monotonic - before.monotonic)
    return drift if abs(drift) > LARGEST_DRIFT_SEC else None
