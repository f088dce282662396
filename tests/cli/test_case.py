"""`proctor case` as a program."""

import json
from pathlib import Path

import pytest

from proctor.digest import sha256_hex
from tests.cli.programs import Proctor
from tests.report.cases import TRIAL, seal_case


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    seal_case(tmp_path).close()
    return tmp_path / "ledger"


def test_a_case_is_written_and_checked(proctor: Proctor, ledger: Path, tmp_path: Path) -> None:
    page = tmp_path / "case.html"
    ran = proctor("case", TRIAL, "-o", page, "--ledger", ledger)
    assert (ran.code, ran.err) == (0, "")
    assert "experiment-001/trial-007 with 4 of 4 files of evidence" in ran.out
    checked = proctor("check", page, "--json")
    assert checked.code == 0
    assert json.loads(checked.out)["checked"][0]["thing"] == "case file"
    page.write_bytes(page.read_bytes().replace(b"trial-007", b"trial-008", 1))
    assert proctor("check", page).code == 1


def test_the_json_has_path_size_and_digests(proctor: Proctor, ledger: Path, tmp_path: Path) -> None:
    page = tmp_path / "case.html"
    facts = json.loads(proctor("case", "3", "-o", page, "--ledger", ledger, "--json").out)
    assert facts["path"] == str(page)
    assert facts["size"] == page.stat().st_size
    assert facts["sha256"] == sha256_hex(page.read_bytes())
    assert (facts["seq"], facts["embedded"], facts["left_out"]) == (3, 4, [])


def test_another_file_is_not_replaced(proctor: Proctor, ledger: Path, tmp_path: Path) -> None:
    page = tmp_path / "case.html"
    assert proctor("case", TRIAL, "-o", page, "--ledger", ledger).code == 0
    assert proctor("case", TRIAL, "-o", page, "--ledger", ledger).code == 0
    page.write_text("mine")
    ran = proctor("case", TRIAL, "-o", page, "--ledger", ledger)
    assert (ran.code, page.read_text()) == (2, "mine")
    assert "exists and is not overwritten" in ran.err


def test_what_cannot_be_a_case_is_refused(proctor: Proctor, ledger: Path, tmp_path: Path) -> None:
    page = tmp_path / "case.html"
    for trial, sentence in (
        (str(tmp_path), "`proctor ledger seal"),
        ("nobody", "no trial or entry is named 'nobody'"),
        ("0", "entry 0 is not a trial"),
        ("trial-00", "may be any of"),
    ):
        ran = proctor("case", trial, "-o", page, "--ledger", ledger)
        assert (ran.code, page.exists()) == (2, False)
        assert sentence in ran.err
    assert proctor("case", TRIAL, "-o", ledger / "x.html", "--ledger", ledger).code == 2
    assert proctor("case", TRIAL, "-o", page, "--ledger", tmp_path / "none").code == 2
    assert proctor("case", TRIAL, "-o", page, "--ledger", ledger, "--max-size", "0").code == 2


def test_a_damaged_ledger_gives_no_case(proctor: Proctor, ledger: Path, tmp_path: Path) -> None:
    for artifact in ledger.glob("artifacts/sha256/*/*"):
        artifact.write_bytes(b"other bytes")
    ran = proctor("case", TRIAL, "-o", tmp_path / "case.html", "--ledger", ledger)
    assert (ran.code, (tmp_path / "case.html").exists()) == (1, False)
    assert "artifact" in ran.err


def test_a_reward_that_cannot_be_shown_is_said_when_the_page_is_made(
    proctor: Proctor, tmp_path: Path
) -> None:
    seal_case(tmp_path, {"result.json": b"{}"}).close()
    page, ledger = tmp_path / "case.html", tmp_path / "ledger"
    ran = proctor("case", TRIAL, "-o", page, "--ledger", ledger)
    assert ran.code == 0
    assert (
        "`proctor check` will fail it: the reward cannot be verified: the evidence has no"
        in ran.out
    )
    facts = json.loads(proctor("case", TRIAL, "-o", page, "--ledger", ledger, "--json").out)
    assert len(facts["reward_problems"]) == 1
    assert proctor("check", page).code == 1
