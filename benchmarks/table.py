"""Rows as a table for people, 80 columns wide at most, and as the JSON of build/bench.json."""

import json
from collections.abc import Iterable

from benchmarks.row import Row

_HEADINGS = ("name", "ours", "other", "ratio", "bar", "holds")
_WIDTHS = (20, 11, 11, 9, 9, 6)


def render_heading() -> str:
    """The line above the rows."""
    return _line(_HEADINGS)


def render_row(row: Row) -> str:
    """One row as a line."""
    bar = str(row.bar) if row.bar else "-"
    verdict = ("yes" if row.holds else "NO") if row.bar else "-"
    ours, other = _quantity(row.ours, row.unit), _quantity(row.other, row.unit)
    return _line((row.name, ours, other, f"{row.ratio:.2f}", bar, verdict))


def render_json(rows: Iterable[Row]) -> str:
    """The list that build/bench.json holds."""
    return json.dumps([_document(row) for row in rows], indent=2) + "\n"


def _document(row: Row) -> dict[str, object]:
    return {
        "name": row.name,
        "unit": row.unit,
        "ours": row.ours,
        "other": row.other,
        "other_name": row.other_name,
        "ratio": row.ratio,
        "bar": str(row.bar) if row.bar else None,
        "holds": row.holds,
    }


def _quantity(value: float, unit: str) -> str:
    if unit == "s" and value < 1:
        return f"{value * 1000:.2f} ms"
    return f"{value:.2f} {unit}"


def _line(cells: Iterable[str]) -> str:
    first, *others = zip(cells, _WIDTHS, strict=True)
    return f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in others)
