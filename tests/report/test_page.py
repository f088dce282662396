"""One document, and its faces: nothing that stands in it gets out of its place."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.report.page.blocks import (
    Bars,
    Block,
    Cell,
    Column,
    Document,
    Dot,
    Facts,
    Heading,
    Histogram,
    Intervals,
    Lines,
    Paragraph,
    Plot,
    Scatter,
    Spread,
    Table,
)
from proctor.report.page.columns import cut_middle, width_of
from proctor.report.page.figures import render_ends
from proctor.report.page.html import Links, render_blocks, render_page
from proctor.report.page.markdown import escape, render_markdown
from proctor.report.page.svg import render_svg
from proctor.report.page.text import render_text
from proctor.report.statistics.intervals import Interval

HOSTILE = "<script>alert(1)</script>|`x`\n\x1b[2J\u202e[a](http://evil.example) www.evil.example"


def every_block(text: str) -> tuple[Block, ...]:
    return (
        Heading(text),
        Paragraph(text, "warn"),
        Facts(((text, text),)),
        Table((Column(text), Column("n", is_number=True)), ((Cell(text, "bad"), Cell("1")),), text),
        Lines((text,), text),
        Intervals(text, (Spread(text, 0.5, 0.2, 0.8), Spread("none", None)), mark=0.0),
        Bars(text, ((text, 0.5), ("b", -1.0))),
        Histogram(text, text, (1.0, 2.0, 2.0)),
        Scatter(text, text, text, (Dot(text, 1.0, 0.5, is_best=True), Dot("b", 0.1, 0.2))),
    )


def test_no_markup_of_a_name_gets_into_a_page() -> None:
    page = render_page(Document(HOSTILE, every_block(HOSTILE)), "p{}")
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert page.count("&lt;script&gt;") > 10


def test_a_page_loads_nothing_and_names_its_style_by_its_hash() -> None:
    page = render_page(Document("t", ()), "p { color: red }")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy[1]
    assert not re.search(r'(src|href)="(?!#)', page)


def test_names_make_no_markdown() -> None:
    text = render_markdown(Document(HOSTILE, every_block(HOSTILE)))
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert "<script>" not in outside
    assert "http://" not in outside
    assert "www." not in outside
    assert "](" not in outside.replace("\\](", "").replace("\\[", "")
    rows = [line for line in outside.split("\n") if line.startswith("|") and "bad" not in line]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {3}


@given(st.text())
def test_an_escaped_text_is_one_line_of_markdown(text: str) -> None:
    assert "\n" not in escape(text)
    assert "<" not in escape(text).replace("\\<", "")


@given(st.lists(st.text("`a \n", max_size=12), min_size=1, max_size=4))
def test_a_fence_is_longer_than_anything_in_it(lines: list[str]) -> None:
    text = render_markdown(Document("t", (Lines(tuple(lines)),)))
    body = text.split("\n\n", 1)[1].rstrip("\n").split("\n")
    fence = body[-1]
    assert body[0] == f"{fence}text"
    assert all(fence not in line for line in body[1:-1])


PLOTS = [block for block in every_block("a & <b>") if isinstance(block, Plot.__value__)]


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: type(plot).__name__)
def test_a_plot_is_well_formed_and_tells_those_who_do_not_see_it(plot: Plot) -> None:
    root = ElementTree.fromstring(render_svg(plot, 7))  # noqa: S314 - it is ours
    named = {child.tag.rpartition("}")[2]: child for child in root}
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{named['title'].get('id')} {named['desc'].get('id')}"
    assert named["title"].text == "a & <b>"
    assert named["desc"].text
    assert not [each for each in root.iter() if each.get("style") or "script" in each.tag]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_tables_and_plots_fit_the_terminal(width: int) -> None:
    rows = tuple((Cell("word " * 30), Cell("1"), Cell("long-name" * 9)) for _ in range(3))
    table = Table((Column("a"), Column("n", is_number=True), Column("b", is_extra=True)), rows)
    blocks = (table, *PLOTS, Paragraph("word " * 50), Facts((("label", "word " * 50),)))
    for line in render_text(Document("A title " * 20, blocks), width):
        assert width_of(line) <= width


def test_where_nobody_looks_nothing_is_cut() -> None:
    table = Table((Column("a"),), ((Cell("x" * 500),),))
    assert "x" * 500 in "\n".join(render_text(Document("t", (table,)), None))


@given(st.text(min_size=1), st.integers(4, 40))
def test_a_name_that_is_cut_in_the_middle_fits(text: str, width: int) -> None:
    assert width_of(cut_middle(text, width)) <= max(width, 1) or not text.isprintable()


def test_cells_lead_to_trials_and_pairs_of_them() -> None:
    links = Links(trial=lambda name: f"t/{name}", pair=lambda a, b: f"p/{a}+{b}")
    row = (Cell("one", trials=("a/1",)), Cell("two", trials=("a/1", "b/2")))
    page = render_blocks([Table((Column("x"), Column("y")), (row,))], links)
    assert '<a href="t/a/1">one</a>' in page
    assert '<a href="p/a/1+b/2">two</a>' in page


def test_ends_of_an_interval_that_differ_are_shown_to_differ() -> None:
    assert render_ends(Interval(0.1, 0.25)) == "[0.1, 0.25]"
    assert render_ends(Interval(0.00012, 0.00013)) == "[0.00012, 0.00013]"
    assert render_ends(Interval(1234.5, 1234.6)) == "[1,234, 1,235]"
