"""`proctor board`, as people meet it."""

import csv
import io
import json
from pathlib import Path

import pytest

from proctor.ledger.api import Ledger
from proctor.ledger.review import append_supersession
from tests.cli.programs import Proctor
from tests.ledger.ledgers import find_key, forget_index
from tests.report.board_ledgers import DATASET, open_board_ledger, sit

TASKS = Path(__file__).resolve().parent.parent.parent / "examples" / "tasks"


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with a few trials, which is the default."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    with open_board_ledger(tmp_path) as ledger:
        fill(ledger)
    return tmp_path


def fill(ledger: Ledger) -> None:
    failed = sit(ledger, "t1", None)
    again = sit(ledger, "t2", 1.0)
    sit(ledger, "t3", 0.0, task="subtract", source="harbor", model="p/two|x")
    append_supersession(ledger, failed, again, "infrastructure", reason="no disk", author="ana")


def test_datasets_are_listed_without_a_name(proctor: Proctor, where: Path) -> None:
    assert proctor("board").out.splitlines()[1].split() == [DATASET, "3", "1"]
    assert json.loads(proctor("board", "--json").out)["datasets"][0]["trials"] == 3


def test_a_board_says_what_its_numbers_rest_on(proctor: Proctor, where: Path) -> None:
    ran = proctor("board", "--dataset", DATASET)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == f"{DATASET} at 5 entries of example.org/ledger: 2 rows from 3 trials"
    assert "1. modal, harbor-0.13.1, default limits; 2 tasks, 0 images pinned" in lines[2]
    assert "     1 superseded; 1 of 2 tasks" in ran.out
    assert "     imported (harbor); 1 of 2 tasks; cost $" in ran.out
    assert "note: section 1: its rows are based on different tasks" in ran.out
    assert "imported (harbor)" in ran.out


def test_the_same_position_gives_the_same_bytes(proctor: Proctor, where: Path) -> None:
    forms: tuple[tuple[str, ...], ...] = ((), ("--json",), ("--markdown",), ("--csv",))
    then = [proctor("board", "--dataset", DATASET, *form).out for form in forms]
    with Ledger.open(where / "ledger", key=None) as ledger:
        size = ledger.refresh().tree.size
    forget_index(where / "ledger")
    again = [proctor("board", "--dataset", DATASET, "--at", size, *form).out for form in forms]
    assert again == then


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_the_line_below_a_row_fits(
    proctor: Proctor, where: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = proctor("board", "--dataset", DATASET).out.splitlines()
    rows = [at for at, line in enumerate(lines) if line.startswith("1.")][1:]
    assert len(rows) == 2
    assert all(len(lines[at + 1]) <= columns for at in rows)
    assert all(not lines[at + 2].startswith(" ") for at in rows)


def test_the_trials_of_a_row_are_listed(proctor: Proctor, where: Path) -> None:
    out = proctor("board", "--dataset", DATASET, "--trials", "1.1").out
    assert "superseded (infrastructure, by experiment-001/t2)" in out
    assert out.splitlines()[-1] == "2 trials"
    assert "     2 listed = 1 counted + 1 superseded + 0 restarted; " in out
    ran = proctor("board", "--dataset", DATASET, "--trials", "7.7")
    assert (ran.code, "expected a row of this board, 1.1 to 1.2" in ran.err) == (2, True)


def test_csv_and_markdown_survive_odd_names(proctor: Proctor, where: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(proctor("board", "--dataset", DATASET, "--csv").out)))
    assert [row["model"] for row in rows] == ["provider/one", "p/two|x"]
    assert [row["denominators.superseded"] for row in rows] == ["1", "0"]
    assert "p/two&#124;x" in proctor("board", "--dataset", DATASET, "--markdown").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dataset", "nope"], f"the datasets are {DATASET}"),
        (["--dataset", DATASET, "--at", "99"], "expected a position from 1 to 5, not 99"),
        (["--at", "3"], "--at requires --dataset"),
        (["--dataset", DATASET, "--csv", "--json"], "cannot be combined with"),
        (["--dataset", DATASET, "--policy", "nope"], "one of leaderboard, terminal-bench-2-1"),
    ],
)
def test_what_cannot_be_shown_is_said(
    proctor: Proctor, where: Path, arguments: list[str], said: str
) -> None:
    ran = proctor("board", *arguments)
    assert (ran.code, said in ran.err) == (2, True)


def test_a_policy_marks_the_rows(proctor: Proctor, where: Path) -> None:
    document = json.loads(
        proctor("board", "--dataset", DATASET, "--policy", "leaderboard", "--json").out
    )
    first, _ = document["sections"][0]["rows"]
    assert document["policy"] == "leaderboard"
    assert (first["policy"]["passed"], first["leaderboard_grade"]) == (False, False)
    assert first["policy"]["reasons"]["unpinned-image"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["audit", "a", "--ledger", "b"], "--ledger requires --rerun"),
        (["audit"], "Missing argument 'JOBS...'"),
    ],
)
def test_what_cannot_be_audited_is_said(
    proctor: Proctor, where: Path, arguments: list[str | Path], said: str
) -> None:
    ran = proctor(*arguments)
    assert (ran.code, said in ran.err) == (2, True)


def test_every_line_of_a_csv_has_the_same_columns(proctor: Proctor, where: Path) -> None:
    with Ledger.open(where / "ledger", key=find_key(where)) as ledger:
        for at, reward in enumerate((0.0, 1.0, 1.0, 1.0)):
            sit(ledger, f"m{at}", reward, model="p/three", task=f"task-{at % 2}")
    rows = list(csv.DictReader(io.StringIO(proctor("board", "--dataset", DATASET, "--csv").out)))
    by_model = {row["model"]: row for row in rows}
    assert by_model["p/three"]["score_interval.low"] == "0.5"
    assert float(by_model["p/three"]["pass_at_k.value"]) == 1
    assert by_model["provider/one"]["score_interval.low"] == ""
