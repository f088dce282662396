"""Tones of integrity findings in documents and on pages, by level."""

from collections.abc import Iterable
from typing import Final

from proctor.report.page.blocks import Tone
from proctor.trial.finding import Level, worst_level

_TONES: Final[dict[Level, Tone]] = {Level.ALARM: "bad", Level.NOTICE: "warn", Level.INFO: "soft"}


def tone_of_level(level: Level | None) -> Tone:
    """The tone of a level; red only for alarms, none without a finding."""
    return _TONES[level] if level is not None else ""


def tone_of_codes(codes: Iterable[str]) -> Tone:
    """The tone of the worst finding."""
    return tone_of_level(worst_level(codes))
