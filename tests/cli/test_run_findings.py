"""Integrity findings at the end of `proctor run`: by level, alarms first."""

from pathlib import Path

import msgspec
import pytest

from proctor.cli.running.report import UNREADABLE, collect_findings, count_alarmed, render_findings
from proctor.trial.finding import FindingCode, is_common, meaning_of

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
        "integrity findings (<trial>/findings.json); scores are unchanged:",
        "  alarm   late-reward     2 trials, two …",
        "    A reward file changed after the test script had ended.",
        "  alarm   two-rewards     1 trial, two",
        "    The verifier left two reward files.",
        "  notice  system-changed  1 trial, one",
        "    System files that the tests may use were changed.",
        "  notice  unreadable      cannot be read, torn",
        "for information, in findings.json: output-cut 2",
        "  output-cut: A command printed more than is kept.",
    ]


def test_a_substituted_base_says_what_was_used_and_how_to_use_the_image() -> None:
    assert list(render_findings({"base-substituted": ["one"]})) == [
        "for information, in findings.json: base-substituted 1",
        "  base-substituted: Ran on a build of the Dockerfile or --base, not the task's image; "
        "pull the image with `proctor image pull`, or use -e docker.",
    ]


@pytest.mark.parametrize(
    ("code", "n", "total", "is_folded"),
    [
        ("base-substituted", 3, 5, True),
        ("base-substituted", 2, 4, False),
        ("base-substituted", 1, 1, False),
        ("late-reward", 5, 5, False),
    ],
)
def test_only_what_informs_and_most_trials_have_is_folded(
    code: str, n: int, total: int, is_folded: bool
) -> None:
    assert is_common(code, n, total) is is_folded


def test_every_code_has_a_meaning() -> None:
    assert [code for code in FindingCode if meaning_of(code) is None] == []
    assert meaning_of("from-a-newer-version") is None


def test_a_trial_with_two_alarms_is_one_trial_with_an_alarm(job: Path) -> None:
    assert count_alarmed(collect_findings(job, FOUND)) == 2
    assert count_alarmed({"output-cut": ["one"], UNREADABLE: ["torn"]}) == 0
