"""Entries that an earlier version, or somebody by hand, withheld without naming a trial."""

from pathlib import Path

import pytest

from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.verification.verify import verify_ledger
from tests.cli.programs import Proctor, run_here
from tests.ledger.owner import Owner
from tests.report.board_ledgers import DATASET

SAID = "1 entry withheld without naming a trial (entry 2): any experiment may be meant"


@pytest.fixture
def proctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Proctor:
    return run_here(monkeypatch, capsys)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """One whose owner has withheld the second trial by hand, without a name."""
    owner = Owner()
    for move in (
        ("seal", 0, 0, 1.0, "plain"),
        ("seal", 0, 0, 0.0, "plain"),
        ("seal", 1, 0, 1.0, "plain"),
        ("withhold", 1, "nobody", True),
    ):
        owner.move(move)
    return owner.write(tmp_path / "ledger")


def test_verify_says_so_and_the_ledger_is_sound(proctor: Proctor, ledger: Path) -> None:
    ran = proctor("ledger", "verify", "--ledger", ledger)
    assert (ran.code, f"note: {SAID}" in ran.out) == (0, True)
    assert verify_ledger(ledger, fast=True).unnamed == (2,)


def test_a_policy_fails_by_name(proctor: Proctor, ledger: Path) -> None:
    ran = proctor("check", "other", "--policy", "leaderboard", "--ledger", ledger)
    assert SAID in " ".join(ran.out.split())
    ran = proctor("board", "--dataset", DATASET, "--policy", "leaderboard", "--ledger", ledger)
    assert "withheld-unnamed 2" in " ".join(ran.out.split())


def test_an_index_that_read_the_line_before_forgets_it(tmp_path: Path) -> None:
    owner = Owner()
    owner.move(("seal", 0, 0, 1.0, "plain"))
    owner.move(("seal", 0, 0, 0.0, "plain"))
    before = len(owner.lines)
    place = owner.write(tmp_path / "ledger")
    with OpenLedger.open(place) as ledger:
        assert len(list_trials(ledger)) == 2
    owner.move(("withhold", 1, "nobody", True))
    assert len(owner.lines) == before + 1
    owner.rewrite(place)
    with OpenLedger.open(place) as ledger:
        assert [row.trial_id for row in list_trials(ledger)] == ["t0"]


@pytest.mark.parametrize("named", ["own", "another", "never"])
def test_a_line_that_is_still_there_is_not_withheld(tmp_path: Path, named: str) -> None:
    owner = Owner()
    for move in (
        ("seal", 0, 0, 1.0, "plain"),
        ("seal", 0, 0, 0.0, "plain"),
        ("withhold", 0, named, False),
    ):
        owner.move(move)
    directory = owner.write(tmp_path / "ledger")
    if named != "own":
        assert verify_ledger(directory).damage
        return
    with OpenLedger.open(directory) as ledger:
        assert [row.status for row in list_trials(ledger)] == ["sealed", "sealed"]


def test_a_line_withheld_under_the_name_of_another_trial_is_damage(tmp_path: Path) -> None:
    owner = Owner()
    for move in (
        ("seal", 0, 0, 1.0, "plain"),
        ("seal", 0, 0, 0.0, "plain"),
        ("withhold", 0, "another", True),
    ):
        owner.move(move)
    (found,) = verify_ledger(owner.write(tmp_path / "ledger")).damage
    assert found.kind == "duplicate-trial"
