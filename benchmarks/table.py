"""Rows as a table for people, 80 columns wide at most, and as the JSON of build/bench.json."""

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict

from benchmarks.row import NotMeasured, Row

_WIDTHS = (20, 11, 11, 9, 9, 6)


def render_heading() -> str:
    """The line above the rows."""
    return _line(("name", "ours", "other", "ratio", "bar", "holds"))


def render_row(row: Row | NotMeasured) -> str:
    """One row as a line, or as several with the reason why there are no figures."""
    if isinstance(row, NotMeasured):
        text = f"{row.name:<{_WIDTHS[0]}} not measured: {row.not_measured}"
        return textwrap.fill(text, 80, subsequent_indent=" " * (_WIDTHS[0] + 1))
    verdict = ("yes" if row.holds else "NO") if row.bar else "-"
    ours, other = _quantity(row.ours, row.unit), _quantity(row.other, row.unit)
    return _line((row.name, ours, other, f"{row.ratio:.2f}", row.bar or "-", verdict))


def render_json(rows: Iterable[Row | NotMeasured]) -> str:
    """The list that build/bench.json holds."""
    return json.dumps([asdict(row) for row in rows], indent=2) + "\n"


def _quantity(value: float, unit: str) -> str:
    if unit == "s" and value < 1:
        return f"{value * 1000:.2f} ms"
    return f"{value:.2f} {unit}"


def _line(cells: Iterable[str]) -> str:
    first, *others = zip(cells, _WIDTHS, strict=True)
    return f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in others)
