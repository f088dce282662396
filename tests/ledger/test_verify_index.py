"""verify and the index: derived, held against the log, made anew, and never needed."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from proctor.ledger.entry import NoteEntry, SupersedeEntry
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import find_trial
from proctor.ledger.review import append_review
from proctor.ledger.row import COLUMNS as TRIAL_COLUMNS
from proctor.ledger.sealing import Submission, seal
from proctor.ledger.trial_index import TrialFilter
from proctor.ledger.verification.verify import verify_ledger
from proctor.ledger.withhold import Why, withhold_trial
from tests.cli.programs import run_here
from tests.ledger.ledgers import find_key, index_of, record_bytes, search_index_of, small
from tests.ledger.trials import open_ledger, seal_files


def test_an_index_that_is_behind_or_missing_is_fine_and_left_alone(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a", "b")
    with OpenLedger.open(ledger, key=find_key(tmp_path)) as opened, opened.writing():
        opened.append([NoteEntry(at="", seq=0, text="later", author="ana")])
    found = verify_ledger(ledger)
    assert (found.damage, found.notes, found.size) == ([], [], 4)
    index_of(ledger).unlink()
    assert verify_ledger(ledger).notes == []
    assert not index_of(ledger).exists()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE trials SET reward = 0.99 WHERE trial_id = 'a'",
        "UPDATE trials SET model = 'other'",
        "UPDATE trials SET cost_usd = 0.01 WHERE trial_id = 'a'",
        "UPDATE trials SET dataset_id = 'elsewhere'",
        "UPDATE trials SET findings = 'base-substituted' WHERE trial_id = 'b'",
        "UPDATE trials SET reason_code = 'agent_timeout'",
        "UPDATE trials SET seconds = 1",
        "UPDATE trials SET task_conditions = run_conditions",
        "UPDATE conditions SET document = replace(document, 'e', 'f')",
        "INSERT INTO remarks SELECT record, 2, 'review', 'pass', 1 FROM trials",
        "DELETE FROM trials WHERE trial_id = 'b'",
        "UPDATE entries SET offset = offset + 1 WHERE seq = 2",
        "UPDATE entries SET leaf = x'00' WHERE seq = 1",
        "UPDATE position SET peaks = zeroblob(64)",
        "UPDATE position SET size = 2, peaks = zeroblob(32)",
        "DROP TABLE position",
        "UPDATE position SET version = 99",
    ],
)
def test_an_index_out_of_step_is_mended_and_is_no_damage(tmp_path: Path, change: str) -> None:
    ledger = small(tmp_path, "a", "b")
    with sqlite3.connect(index_of(ledger)) as index:
        index.execute(change)
    index.close()
    found = verify_ledger(ledger)
    assert found.damage == []
    assert "it was rebuilt" in "".join(found.notes)
    assert verify_ledger(ledger).notes == []
    with OpenLedger.open(ledger) as opened:
        opened.refresh()
        rows = list(opened.index.trials(TrialFilter()))
        assert [row.trial_id for row in rows] == ["a", "b"]
        assert all(row.reward != 0.99 for row in rows)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM remarks",
        "UPDATE remarks SET verdict = 'pass'",
        "UPDATE trials SET record = replace(record, '0', '1')",
    ],
)
def test_what_was_said_of_trials_is_held_against_the_log(tmp_path: Path, change: str) -> None:
    directory = small(tmp_path, "a", "b")
    with OpenLedger.open(directory, key=find_key(tmp_path)) as ledger:
        append_review(ledger, find_trial(ledger, "a"), "fail", reviewer="ana", note="")
        ledger.refresh()
    assert verify_ledger(directory).notes == []
    with sqlite3.connect(index_of(directory)) as index:
        index.execute(change)
    index.close()
    assert "it was rebuilt" in "".join(verify_ledger(directory).notes)
    assert verify_ledger(directory).notes == []


LIES = {
    "entries": ["kind", "at", "segment", "offset", "length", "leaf"],
    "trials": [name for name in TRIAL_COLUMNS if name != "seq"],
    "remarks": ["record", "seq", "kind", "verdict", "is_subject"],
    "conditions": ["document"],
    "withholdings": ["entry"],
    "position": ["version", "size", "segment", "offset", "peaks", "key", "origin"],
}  # fmt: skip
"""All columns of all tables."""
MORE_LIES = [
    "INSERT INTO trials SELECT 99, experiment_id, 'ghost', "  # noqa: S608
    f"{', '.join(TRIAL_COLUMNS[3:])} FROM trials WHERE trial_id = 'a'",
    "INSERT INTO remarks SELECT record, 1 << 40, 'review', 'pass', 1 FROM trials",
    "INSERT INTO remarks SELECT record, -1, 'review', 'pass', 1 FROM trials",
    "INSERT INTO entries SELECT 99, kind, at, segment, offset, length, leaf FROM entries LIMIT 1",
    "DELETE FROM trials WHERE status = 'withheld'",
    "DELETE FROM withholdings",
    "INSERT INTO evidence VALUES (7, 99)",
    "UPDATE trials SET status = 'superseded' WHERE trial_id = 'd'",
    "UPDATE trials SET status = 'sealed' WHERE status = 'superseded'",
    "UPDATE trials SET status = 'withheld' WHERE trial_id = 'a'",
    "DELETE FROM entries WHERE kind = 'review'",
    "CREATE TRIGGER lie AFTER INSERT ON trials BEGIN DELETE FROM trials; END",
    "CREATE VIEW more AS SELECT * FROM trials",
]
COLUMNS = [(table, column) for table, columns in LIES.items() for column in columns]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger whose index has rows in every table: reviewed, superseded and withheld trials."""
    place = tmp_path_factory.mktemp("full")
    with OpenLedger.open(small(place, *"abcd"), key=find_key(place)) as ledger:
        append_review(ledger, find_trial(ledger, "a"), "fail", reviewer="ana", note="")
        a, b = (find_trial(ledger, trial).subject for trial in "ab")
        entry = SupersedeEntry(
            at="", seq=0, subject=b, by=a, cause="infrastructure", reason="a disk", author="ana"
        )
        with ledger.writing():
            ledger.append([entry])
        ledger.refresh()
        withhold_trial(ledger, find_trial(ledger, "c"), Why("it leaked", "ana"))
    return place / "ledger"


def lie(ledger: Path, statement: str) -> None:
    with sqlite3.connect(index_of(ledger)) as index:
        index.execute(statement)
    index.close()


def test_every_column_is_named_here(full: Path) -> None:
    with sqlite3.connect(index_of(full)) as index:
        tables = index.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        found = {
            (table, column)
            for (table,) in tables
            for _, column, _, _, _, is_key in index.execute(f"PRAGMA table_info({table})")
            # test_tiles.py lies about hashes, which need 256 entries.
            if not is_key and table != "hashes"
        }
    index.close()
    assert found == set(COLUMNS)


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_no_column_can_lie_unseen(full: Path, table: str, column: str) -> None:
    assert verify_ledger(full).notes == []
    # Another text, number or bytes than it had, in one row.
    other = f"CASE typeof({column}) WHEN 'text' THEN {column} || 'x' WHEN 'blob' THEN "
    other += f"{column} || x'00' WHEN 'null' THEN 7 ELSE {column} + 1 END"
    first = f"(SELECT min(rowid) FROM {table})"  # noqa: S608 - our own names
    lie(full, f"UPDATE {table} SET {column} = {other} WHERE rowid = {first}")  # noqa: S608
    found = verify_ledger(full)
    assert (found.damage, "it was rebuilt" in "".join(found.notes)) == ([], True)


@pytest.mark.parametrize("statement", MORE_LIES)
def test_no_row_can_be_added_or_taken_unseen(full: Path, statement: str) -> None:
    assert verify_ledger(full).notes == []
    lie(full, statement)
    found = verify_ledger(full)
    assert (found.damage, "it was rebuilt" in "".join(found.notes)) == ([], True)


def test_the_evidence_of_a_trial_cannot_be_taken_unseen(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_files(ledger, "a", {"f.txt": b"data"})
        ledger.refresh()
    lie(tmp_path / "ledger", "DELETE FROM evidence")
    assert "it was rebuilt" in "".join(verify_ledger(tmp_path / "ledger").notes)


SEARCH_LIES = [
    "DELETE FROM blocks",
    "DELETE FROM read",
    "INSERT INTO rows (rows) VALUES ('delete-all')",
    "DELETE FROM rows_data WHERE id > 10",
    "DELETE FROM rows_docsize",
    "UPDATE position SET peaks = zeroblob(64)",
    "CREATE TRIGGER lie AFTER INSERT ON blocks BEGIN DELETE FROM blocks; END",
    "CREATE VIEW more AS SELECT * FROM blocks",
]


@pytest.mark.parametrize("statement", SEARCH_LIES)
def test_a_search_index_that_is_wrong_is_deleted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    statement: str,
) -> None:
    proctor, ledger = run_here(monkeypatch, capsys), small(tmp_path, "a", "b")
    found = proctor("search", "task", "--json", "--ledger", ledger).out
    assert "note:" not in proctor("ledger", "verify", "--ledger", ledger).out
    with sqlite3.connect(search_index_of(ledger)) as index:
        index.execute(statement)
    index.close()
    ran = proctor("ledger", "verify", "--ledger", ledger)
    assert (ran.code, "the next search builds it again" in ran.out) == (0, True)
    assert not search_index_of(ledger).exists()
    assert proctor("search", "task", "--json", "--ledger", ledger).out == found


def test_the_search_index_of_a_ledger_that_was_replaced_is_deleted_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    proctor, ledger = run_here(monkeypatch, capsys), small(tmp_path, "a", "b")
    assert "2 trials" in proctor("search", "task", "--ledger", ledger).out
    shutil.rmtree(ledger)
    with OpenLedger.create(ledger, find_key(tmp_path), "example.org/another") as another:
        seal(another, [Submission(record=record_bytes("c"), where="c")])
    assert search_index_of(ledger).exists()
    ran = proctor("ledger", "verify", "--ledger", ledger)
    assert (ran.code, "note:" in ran.out) == (0, False)
    assert "1 trial" in proctor("search", "task", "--ledger", ledger).out


def test_an_index_that_is_no_database_is_made_anew(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a")
    index_of(ledger).write_bytes(b"garbage" * 1000)
    assert "it was rebuilt" in "".join(verify_ledger(ledger).notes)
