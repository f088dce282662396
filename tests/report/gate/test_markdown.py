"""A page whose tables stay tables, whatever the names are made of."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.report.gate.judging import Limits, Miss, judge
from proctor.report.gate.output import render_markdown
from proctor.report.page.markdown import escape
from proctor.sentence import printable
from tests.examples import examples
from tests.report.gate.runs import run_of

LIMITS = Limits(min_mean=0.9)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a|b", "a&#124;b"),
        ("`rm`", "&#96;rm&#96;"),
        ("<img src=x>", "&#60;img src=x&#62;"),
        ("a\nb\x1b[31m", r"a b&#92;x1b\[31m"),
        ("oracle__tb", r"oracle\_\_tb"),
        ("[x](http://y)", r"\[x\](http&#58;//y)"),
        ("\\|", "&#92;&#124;"),
        ("@all &amp;", "&#64;all &#38;amp;"),
        ("plain-name.v1", "plain-name.v1"),
    ],
)
def test_what_markdown_would_take_for_more_is_escaped(name: str, written: str) -> None:
    assert escape(name) == written


@given(st.text(max_size=30))
def test_what_is_shown_is_the_text(text: str) -> None:
    shown = html.unescape(re.sub(r"\\([*_{}\[\]~#$!])", r"\1", escape(text)))
    assert shown == printable(text.replace("\n", " "))


@given(st.text(max_size=20), st.text(max_size=20))
@settings(max_examples=examples(50))
def test_every_row_has_the_cells_of_its_table(name: str, text: str) -> None:
    judged = judge(run_of(1.0, 0.0, None, name=name, text=text), LIMITS)
    page = render_markdown([judged], Miss.SCORE)
    widths: set[int] = set()
    for line in page.splitlines():
        if line.startswith("|"):
            widths.add(line.count("|"))
            assert len(widths) == 1
        else:
            widths.clear()


def test_trials_beyond_a_page_are_counted() -> None:
    judged = judge(run_of(*[0.0] * 70), LIMITS)
    page = render_markdown([judged], Miss.SCORE)
    assert "<summary>70 not passed</summary>" in page
    assert "… and 20 more" in page
