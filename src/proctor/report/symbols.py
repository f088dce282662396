"""Symbols and tones: the attempts at a task, the levels of integrity findings."""

from collections.abc import Iterable
from typing import Final

from proctor.report.page.blocks import Tone
from proctor.report.statistics.efficiency import PASS_MARK
from proctor.trial.finding import Level, worst_level

PASSED: Final = "●"
PARTLY: Final = "◐"
FAILED: Final = "○"
NO_REWARD: Final = "x"
LEGEND: Final = (
    f"{PASSED} 1 or more, {PARTLY} between, {FAILED} 0 or less, {NO_REWARD} not scored or without "
    "a number"
)
_MOST: Final = 20


def mark_of(reward: float | None) -> str:
    """The symbol of one attempt."""
    if reward is None:
        return NO_REWARD
    return PASSED if reward >= PASS_MARK else PARTLY if reward > 0 else FAILED


def render_marks(rewards: Iterable[float | None]) -> str:
    """The symbols of all attempts in order, limited to twenty."""
    marks = "".join(map(mark_of, rewards))
    return marks if len(marks) <= _MOST else f"{marks[:_MOST]}+{len(marks) - _MOST}"


# Integrity findings


_TONES: Final[dict[Level, Tone]] = {Level.ALARM: "bad", Level.NOTICE: "warn", Level.INFO: "soft"}


def tone_of_level(level: Level | None) -> Tone:
    """The tone of a level; red only for alarms, none without a finding."""
    return _TONES[level] if level is not None else ""


def tone_of_codes(codes: Iterable[str]) -> Tone:
    """The tone of the worst finding."""
    return tone_of_level(worst_level(codes))
