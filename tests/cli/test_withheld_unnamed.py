"""Entries that were withheld without naming a trial: every command says that there are some."""

import csv
import io
import json
from pathlib import Path

import pytest

from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from proctor.ledger.verification.verify import verify_ledger
from proctor.ledger.withheld import list_unnamed
from tests.cli.programs import Proctor, run_here
from tests.ledger.owner import Owner
from tests.report.board_ledgers import DATASET

SAID = "1 entry withheld without naming a trial (entry 2)"


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


@pytest.mark.parametrize(
    "command",
    [
        ["ledger", "list"],
        ["ledger", "list", "--experiment", "exp", "--reward", "0.5.."],
        ["board", "--dataset", DATASET],
        ["board", "--dataset", DATASET, "--at", "4"],
        ["board", "--dataset", DATASET, "--markdown"],
        ["report", "exp", "--no-behaviour"],
        ["report", "exp", "--no-behaviour", "--format", "markdown"],
        ["report", "exp", "--no-behaviour", "--format", "html"],
        ["compare", "exp", "other", "--no-behaviour"],
        ["gate", "exp", "--min-mean", "0"],
        ["gate", "exp", "--min-mean", "0", "--markdown", "-"],
        ["check", "exp", "--policy", "leaderboard"],
    ],
    ids=" ".join,
)
def test_it_is_said_on_the_screen(proctor: Proctor, ledger: Path, command: list[str]) -> None:
    ran = proctor(*command, "--ledger", ledger)
    plain = ran.out.replace("\\", "").replace("&#40;", "(").replace("&#41;", ")")
    assert SAID in " ".join(plain.split()), ran


@pytest.mark.parametrize(
    ("command", "step"),
    [
        (["board"], "withheld_unnamed"),
        (["search", "anything"], "withheld_unnamed"),
        (["search", "anything", "--trials"], "withheld_unnamed"),
    ],
    ids=str,
)
def test_programs_are_told(proctor: Proctor, ledger: Path, command: list[str], step: str) -> None:
    ran = proctor(*command, "--json", "--ledger", ledger)
    assert (json.loads(ran.out)[step], ran.code) == (1, 0)


def test_tables_for_programs_have_a_row_without_ids_or_a_note(
    proctor: Proctor, ledger: Path
) -> None:
    ran = proctor("ledger", "list", "--csv", "--ledger", ledger)
    *named, nameless = csv.DictReader(io.StringIO(ran.out))
    assert (nameless["seq"], nameless["trial_id"], nameless["status"]) == ("2", "", "withheld")
    assert len(named) == 2
    assert SAID in ran.err
    chosen = proctor("ledger", "list", "--jsonl", "--columns", "seq,trial", "--ledger", ledger)
    assert chosen.out.splitlines()[-1] == '{"seq":2,"trial_id":null}'
    assert SAID in proctor("board", "--dataset", DATASET, "--csv", "--ledger", ledger).err
    sealed = proctor("ledger", "list", "--status", "sealed", "--json", "--ledger", ledger)
    assert [row["seq"] for row in json.loads(sealed.out)] == [1, 3]


def test_a_board_before_the_line_has_nothing_to_disclose(proctor: Proctor, ledger: Path) -> None:
    ran = proctor("board", "--dataset", DATASET, "--at", "2", "--json", "--ledger", ledger)
    assert json.loads(ran.out)["withheld"]["unnamed"] == []


def test_a_policy_fails_by_name(proctor: Proctor, ledger: Path) -> None:
    asked = ("check", "other", "--policy", "leaderboard", "--json", "--ledger", ledger)
    (verdict,) = json.loads(proctor(*asked).out)["submissions"]
    assert "withheld-unnamed" in {failure["code"] for failure in verdict["failures"]}
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
        assert [each.entry for each in list_unnamed(ledger)] == [2]


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
        assert list_unnamed(ledger) == []


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
