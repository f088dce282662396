"""Plots as SVG, in the colours of the page around them.

Every picture has a title and a description for screen readers; its content is also in a table or in
the description. Pictures contain no style and no script.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from proctor.report.page.blocks import Bars, Dot, Histogram, Intervals, Plot, Scatter, Spread, Tone
from proctor.report.page.columns import cut_middle
from proctor.report.page.figures import render_number, render_signed
from proctor.report.page.scale import Scale, extent, make_scale, render_tick, ticks
from proctor.sentence import printable, render_figure

_WIDTH = 520
_LABELS = 165
# Approximate width of a character.
_CHARACTER = 7
_ROW = 24
_RIGHT = 60
_LONGEST_LABEL = 20
_MOST_BINS = 30


def render_svg(plot: Plot, number: int) -> str:
    """Render a plot as an SVG element; the number makes its ids unique on the page."""
    height, parts, description = _draw(plot)
    title, desc = f"plot-{number}-title", f"plot-{number}-desc"
    return (
        f'<svg class="plot" role="img" aria-labelledby="{title} {desc}" '
        f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" font-size="12" '
        f'xmlns="http://www.w3.org/2000/svg"><title id="{title}">{_plain(plot.title)}</title>'
        f'<desc id="{desc}">{_plain(description)}</desc>{"".join(parts)}</svg>'
    )


# Height, elements, and a description.
type _Drawn = tuple[int, Iterable[str], str]


def _draw(plot: Plot) -> _Drawn:
    match plot:
        case Intervals():
            return _intervals(plot)
        case Bars():
            return _bars(plot)
        case Histogram():
            return _histogram(plot)
        case Scatter():
            return _scatter(plot)


def _intervals(plot: Intervals) -> _Drawn:
    height = _ROW * len(plot.rows) + 30
    margin = _margin(row.label for row in plot.rows)
    scale = make_scale(plot.least, plot.most, margin, _WIDTH - _RIGHT)
    parts = list(_axis(scale, height - 24))
    if plot.mark is not None:
        parts.append(_line(scale.place(plot.mark), 4, scale.place(plot.mark), height - 24, 1.5))
    for at, row in enumerate(plot.rows):
        parts += _spread(row, scale, _ROW * at + _ROW / 2 + 4)
    return height, parts, "; ".join(map(_tell, plot.rows))


def _tell(row: Spread) -> str:
    if row.value is None:
        return f"{row.label}: unknown"
    between = ""
    if row.low is not None and row.high is not None:
        between = f", {render_figure(row.low)} to {render_figure(row.high)}"
    return f"{row.label}: {render_figure(row.value)}{between}"


def _spread(row: Spread, scale: Scale, y: float) -> Iterator[str]:
    yield _label(row.label, scale.start, y)
    inside = []
    if row.low is not None and row.high is not None:
        low, high = scale.place(row.low), scale.place(row.high)
        inside.append(_line(low, y, high, y, 2, "currentColor"))
        inside += [_line(x, y - 4, x, y + 4, 2, "currentColor") for x in (low, high)]
    if row.value is not None:
        x = scale.place(row.value)
        inside.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="currentColor"/>')
    yield _toned(row.tone, inside)
    yield _text(_WIDTH - _RIGHT + 8, y + 4, render_number(row.value), "start")


def _bars(plot: Bars) -> _Drawn:
    shown = plot.rows
    height = 18 * len(shown) + 30
    least, most = extent(value for _, value in shown) or (0.0, 0.0)
    scale = make_scale(
        min(least, 0.0), max(most, 0.0), _margin(label for label, _ in shown), _WIDTH - _RIGHT
    )
    zero = scale.place(0)
    parts = [*_axis(scale, height - 24), _line(zero, 4, zero, height - 24, 1.5)]
    for at, (label, value) in enumerate(shown):
        y, x = 18 * at + 13, scale.place(value)
        left, wide = min(zero, x), abs(x - zero)
        bar = (
            f'<rect x="{left:.1f}" y="{y - 6}" width="{wide:.1f}" height="12" fill="currentColor"/>'
        )
        parts.append(_label(label, scale.start, y))
        parts.append(_toned("good" if value > 0 else "bad", [bar]))
        parts.append(_text(_WIDTH - _RIGHT + 8, y + 4, render_signed(value), "start"))
    description = f"{len(plot.rows)} bars from {render_signed(least)} to {render_signed(most)}"
    return height, parts, description


def _histogram(plot: Histogram) -> _Drawn:
    height, base = 180, 140
    found = extent(plot.values)
    if found is None:
        return 20, [_text(0, 14, "nothing is known", "start")], "nothing is known"
    scale = make_scale(*found, 30, _WIDTH - 20)
    edges, counts = _bin(plot.values, scale)
    tallest = max(counts)
    parts = [*_axis(scale, base), _text(_WIDTH / 2, height - 4, plot.unit, "middle")]
    bars = []
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        x, wide = scale.place(low), max(scale.place(high) - scale.place(low) - 1, 1)
        tall = count / tallest * (base - 20)
        bars.append(
            f'<rect x="{x:.1f}" y="{base - tall:.1f}" width="{wide:.1f}" height="{tall:.1f}" '
            'fill="currentColor" fill-opacity="0.65"/>'
        )
    parts.append(_toned("", bars))
    parts.append(_text(24, 26, str(tallest), "end"))
    least, most = map(render_figure, found)
    description = f"{len(plot.values)} values from {least} to {most} {plot.unit}"
    return height, parts, description


def _bin(values: Sequence[float], scale: Scale) -> tuple[list[float], list[int]]:
    count = min(_MOST_BINS, max(5, math.ceil(math.sqrt(len(values)))))
    step = (scale.most - scale.least) / count
    counts = [0] * count
    for value in values:
        if math.isfinite(value):
            counts[min(int((value - scale.least) / step), count - 1)] += 1
    return [scale.least + step * at for at in range(count + 1)], counts


def _scatter(plot: Scatter) -> _Drawn:
    height, base, left = 310, 262, 60
    across, up = extent(dot.x for dot in plot.dots), extent(dot.y for dot in plot.dots)
    if across is None or up is None:
        return 20, [_text(0, 14, "nothing is known", "start")], "nothing is known"
    x_scale = make_scale(min(0.0, across[0]), across[1], left, _WIDTH - 30)
    y_scale = make_scale(min(0.0, up[0]), max(1.0, up[1]), base, 26)
    parts = [*_axis(x_scale, base), _text(_WIDTH / 2, height - 8, plot.x, "middle")]
    for tick in ticks(y_scale):
        y = y_scale.place(tick)
        parts.append(_line(left, y, _WIDTH - 30, y, 0.5))
        parts.append(_text(left - 8, y + 4, render_tick(tick), "end"))
    parts.append(_text(left - 40, 12, plot.y, "start"))
    for dot in plot.dots:
        parts += _dot(dot, x_scale.place(dot.x), y_scale.place(dot.y))
    description = "; ".join(
        f"{dot.label}: {render_figure(dot.x)} {plot.x}, {render_figure(dot.y)} {plot.y}"
        + (", none is better both ways" if dot.is_best else "")
        for dot in plot.dots
    )
    return height, parts, description


def _dot(dot: Dot, x: float, y: float) -> Iterator[str]:
    fill = "currentColor" if dot.is_best else "none"
    mark = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{fill}" stroke="currentColor" '
        'stroke-width="2"/>'
    )
    yield _toned("good" if dot.is_best else "soft", [mark])
    away, anchor = (-10, "end") if x > _WIDTH / 2 else (10, "start")
    yield _text(x + away, y + 4, cut_middle(dot.label, _LONGEST_LABEL), anchor)


def _axis(scale: Scale, base: float) -> Iterator[str]:
    for tick in ticks(scale):
        x = scale.place(tick)
        yield _line(x, 4, x, base, 0.5)
        yield _text(x, base + 16, render_tick(tick), "middle")


def _margin(labels: Iterable[str]) -> float:
    longest = max((len(cut_middle(label, _LONGEST_LABEL)) for label in labels), default=0)
    return min(_LABELS, longest * _CHARACTER + 20)


def _label(label: str, x: float, y: float) -> str:
    return _text(x - 10, y + 4, cut_middle(label, _LONGEST_LABEL), "end")


def _toned(tone: Tone, parts: Iterable[str]) -> str:
    return f'<g class="{tone or "accent"}">{"".join(parts)}</g>'


def _plain(text: str) -> str:
    return escape(printable(text.replace("\n", " ")))


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor">'
        f"{_plain(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, wide: float, stroke: str = "") -> str:
    drawn = f'stroke="{stroke}"' if stroke else 'stroke="currentColor" stroke-opacity="0.35"'
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {drawn} '
        f'stroke-width="{wide:g}"/>'
    )
