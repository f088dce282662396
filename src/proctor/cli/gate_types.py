"""What `gate` takes on its command line that click has no type for."""

import math

import click

from proctor.report.gate.limits import MaxErrors

_MOST_DIGITS = 9


class ErrorsType(click.ParamType[MaxErrors]):
    """A number of trials, such as 3, or a share of them, such as 0.05 or 5%."""

    name = "N|SHARE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> MaxErrors:
        """What was written, or a sentence about it."""
        if isinstance(value, MaxErrors):
            return value
        text = str(value)
        if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
            return MaxErrors(count=int(text))
        share = _parse(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not 0 <= share <= 1:
            self.fail(f"{text!r}: expected trials (3) or a share of them (0.05, 5%)", param, ctx)
        return MaxErrors(share=share)


class NumberType(click.ParamType[float]):
    """A finite number, 0 or more where `least` says so."""

    name = "X"

    def __init__(self, least: float = -math.inf) -> None:
        self.least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """What was written, or a sentence about it."""
        number = value if isinstance(value, float) else _parse(str(value))
        if not math.isfinite(number) or number < self.least:
            what = "a number" if self.least < 0 else f"a number, {self.least:g} or more"
            self.fail(f"{value!r}: expected {what}", param, ctx)
        return number


def _parse(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
