"""Findings in documents: red for alarms alone, and the level in words."""

from collections.abc import Iterator

import pytest

from proctor.report.behaviour import Behaviour
from proctor.report.comparison.compared import Terms, compare_sides
from proctor.report.comparison.document import render_comparison
from proctor.report.comparison.sides import make_side
from proctor.report.document.document import render_report
from proctor.report.document.facts import gather_facts
from proctor.report.page.blocks import Cell, Document, Paragraph, Table
from proctor.report.symbols import tone_of_codes
from proctor.web.export import make_pages
from tests.report.attempts import make_run

LEVELS = [
    (("output-cut", "two-rewards"), "bad", "alarm"),
    (("output-cut", "system-changed"), "warn", "notice"),
    (("output-cut",), "soft", "info"),
]


def paragraphs(document: Document, words: str) -> list[Paragraph]:
    found = [block for block in document.blocks if isinstance(block, Paragraph)]
    return [block for block in found if words in block.text]


def cells(document: Document) -> Iterator[Cell]:
    for block in document.blocks:
        if isinstance(block, Table) and block.caption == "Integrity findings":
            yield from (cell for row in block.rows for cell in row)


def test_without_a_finding_there_is_no_tone() -> None:
    assert tone_of_codes([]) == ""


@pytest.mark.parametrize(("codes", "tone", "level"), LEVELS)
def test_a_comparison_is_alarmed_by_alarms_alone(
    codes: tuple[str, ...], tone: str, level: str
) -> None:
    a, b = make_run("a", {"x": [1]}, findings=codes), make_run("b", {"x": [1]})
    compared = compare_sides(make_side("A", a), make_side("B", b), Terms(), None)
    (found,) = paragraphs(render_comparison(compared), "Integrity findings in")
    assert found.tone == tone
    assert found.text.startswith(f"Integrity findings in A: {codes[-1]} in 1 trial ({level})")


@pytest.mark.parametrize(("codes", "tone", "level"), LEVELS)
def test_a_report_is_alarmed_by_alarms_alone(codes: tuple[str, ...], tone: str, level: str) -> None:
    told = render_report(gather_facts([make_run("a", {"x": [1]}, findings=codes)], None))
    (found,) = paragraphs(told, "see Integrity and reviews below")
    assert found.tone == tone
    assert f"(1 {level}" in found.text
    shown = list(cells(told))
    assert (shown[0].text, shown[0].tone, shown[1].text) == (level, tone, codes[-1])
    assert len(shown) == 4 * len(codes)


@pytest.mark.parametrize(("codes", "tone", "level"), LEVELS)
def test_the_front_page_of_a_site_is_alarmed_by_alarms_alone(
    codes: tuple[str, ...], tone: str, level: str
) -> None:
    runs = [make_run("a", {"x": [1]}, findings=codes)]
    pages = make_pages(gather_facts(runs, None), runs, Behaviour({}), None, lambda *_: None)
    name, page = next(pages)
    assert name == "index.html"
    assert f'<span class="{tone}">{codes[-1]} ({level})' in page
