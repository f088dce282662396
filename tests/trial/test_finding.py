"""Findings have a level by their code, and the page that explains them says the same."""

import re
from pathlib import Path

from proctor.trial.finding import FindingCode, Level, level_of, sort_codes, worst_level

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "integrity.md"
# `- `code` (level): what was seen → what it may mean`, over several lines.
ROW = re.compile(r"^- `([a-z-]+)` \((info|notice|alarm)\): (?:.|\n(?!- ))+?→\s+\S", re.MULTILINE)


def test_the_page_has_every_code_with_its_level() -> None:
    rows = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert sorted(rows) == sorted((str(code), str(level_of(code))) for code in FindingCode)


def test_a_code_that_is_not_known_is_a_notice() -> None:
    assert level_of("of-a-newer-version") is Level.NOTICE


def test_alarms_come_first_and_the_order_is_kept_within_a_level() -> None:
    codes = ["output-cut", "system-changed", "two-rewards", "base-substituted", "late-reward"]
    assert sort_codes(codes) == [
        *("two-rewards", "late-reward", "system-changed", "output-cut", "base-substituted"),
    ]


def test_the_worst_level_is_that_of_the_worst_code() -> None:
    assert worst_level([]) is None
    assert worst_level(["output-cut"]) is Level.INFO
    assert worst_level(["system-changed", "output-cut"]) is Level.NOTICE
    assert worst_level(["output-cut", "late-reward", "system-changed"]) is Level.ALARM
