"""How integrity findings look in documents and on pages: one tone for each level."""

from collections.abc import Iterable
from typing import Final

from proctor.report.page.blocks import Tone
from proctor.trial.finding import Level, worst_level

_TONES: Final[dict[Level, Tone]] = {Level.ALARM: "bad", Level.NOTICE: "warn", Level.INFO: "soft"}


def tone_of_level(level: Level | None) -> Tone:
    """Red for an alarm alone; none where there is no finding."""
    return _TONES[level] if level is not None else ""


def tone_of_codes(codes: Iterable[str]) -> Tone:
    """The tone of the worst among findings."""
    return tone_of_level(worst_level(codes))
