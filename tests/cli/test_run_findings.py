"""Integrity findings at the end of `proctor run`: by level, alarms first."""

from pathlib import Path

import msgspec
import pytest

from proctor.cli.running.report import UNREADABLE, collect_findings, count_alarmed, render_findings

FOUND = {
    "one": ["output-cut", "system-changed"],
    "two": ["output-cut", "late-reward", "two-rewards"],
    "three": ["late-reward"],
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for trial, codes in FOUND.items():
        (tmp_path / trial).mkdir()
        findings = [{"code": code, "phase": "verify", "message": ""} for code in codes]
        (tmp_path / trial / "findings.json").write_bytes(msgspec.json.encode(findings))
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "findings.json").write_text("[{")
    return tmp_path


def test_alarms_come_first_with_their_level(job: Path) -> None:
    lines = list(render_findings(collect_findings(job, [*FOUND, "torn"])))
    assert lines == [
        "integrity findings, in <trial>/findings.json; none changes a score:",
        "  alarm   late-reward     2 trials, two …",
        "  alarm   two-rewards     1 trial, two",
        "  notice  system-changed  1 trial, one",
        "  notice  unreadable      cannot be read, torn",
        "for information, in findings.json: output-cut 2",
    ]
    assert list(render_findings({"output-cut": ["one"]})) == [
        "for information, in findings.json: output-cut 1"
    ]


def test_a_trial_with_two_alarms_is_one_trial_with_an_alarm(job: Path) -> None:
    assert count_alarmed(collect_findings(job, FOUND)) == 2
    assert count_alarmed({"output-cut": ["one"], UNREADABLE: ["torn"]}) == 0
