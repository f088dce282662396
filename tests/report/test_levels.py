"""Findings in documents: red for alarms alone, and the level in words."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proctor.exchange.traced_files import find_in_files
from proctor.report.comparison.compared import Terms, compare_sides
from proctor.report.comparison.document import tell_comparison
from proctor.report.comparison.sides import make_side
from proctor.report.document.document import tell_report
from proctor.report.document.facts import gather_facts
from proctor.report.levels import tone_of_codes
from proctor.report.page.blocks import Cell, Document, Paragraph, Table
from proctor.report.site.trial import tell_trial
from proctor.traces.trial_summary import summarise_traced
from tests.report.attempts import make_attempt, make_run

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
    (found,) = paragraphs(tell_comparison(compared), "Integrity findings in")
    assert found.tone == tone
    assert found.text.startswith(f"Integrity findings in A: {codes[-1]} in 1 trial ({level})")


@pytest.mark.parametrize(("codes", "tone", "level"), LEVELS)
def test_a_report_is_alarmed_by_alarms_alone(codes: tuple[str, ...], tone: str, level: str) -> None:
    told = tell_report(gather_facts([make_run("a", {"x": [1]}, findings=codes)], None))
    (found,) = paragraphs(told, "see Integrity and reviews below")
    assert found.tone == tone
    assert f"(1 {level}" in found.text
    shown = list(cells(told))
    assert (shown[0].text, shown[0].tone, shown[1].text) == (level, tone, codes[-1])
    assert len(shown) == 3 * len(codes)


@pytest.mark.parametrize(("codes", "tone", "level"), LEVELS)
def test_a_site_is_alarmed_by_alarms_alone(
    tmp_path: Path, codes: tuple[str, ...], tone: str, level: str
) -> None:
    trace = tmp_path / "trajectory.jsonl"
    trace.write_text('{"role": "assistant", "step": 1, "content": "hello"}\n')
    (trial,) = find_in_files(str(trace))
    told = tell_trial(make_attempt(findings=codes), trial, summarise_traced(trial))
    found = paragraphs(told, "Integrity finding")
    assert found[0] == Paragraph(f"Integrity finding ({level}): {codes[-1]}", found[0].tone)
    assert (found[0].tone, len(found)) == (tone, len(codes))
