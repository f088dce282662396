"""Bars of scores."""

from proctor.report.statistics.intervals import Interval
from proctor.web.bars import Scale, draw_bar


def test_a_score_without_an_interval_has_no_bar() -> None:
    scale = Scale(0.0, 1.0)
    assert draw_bar(0.5, None, scale, "0.5") == ""
    assert draw_bar(None, None, scale, "none") == ""
    assert 'class="span"' in draw_bar(0.5, Interval(0.25, 0.75), scale, "0.5")
