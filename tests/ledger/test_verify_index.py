"""verify and the index: derived, held against the log, made anew, and never needed."""

import sqlite3
from pathlib import Path

import pytest

from proctor.ledger.entry import NoteEntry
from proctor.ledger.ledger import Ledger
from proctor.ledger.query import find_trial
from proctor.ledger.review import append_review
from proctor.ledger.verification.verify import verify_ledger
from tests.ledger.ledgers import find_key, index_of, small


def test_an_index_that_is_behind_or_missing_is_fine_and_left_alone(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a", "b")
    with Ledger.open(ledger, key=find_key(tmp_path)) as opened, opened.writing():
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
        "UPDATE trials SET collection = 'elsewhere'",
        "UPDATE trials SET findings = 'base-substituted' WHERE trial_id = 'b'",
        "UPDATE trials SET reason_code = 'agent_timeout'",
        "UPDATE trials SET seconds = 1",
        "UPDATE trials SET sitter = run_conditions",
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
    assert "was made anew" in "".join(found.notes)
    assert verify_ledger(ledger).notes == []
    with Ledger.open(ledger) as opened:
        opened.refresh()
        rows = opened.index.select("SELECT trial_id, reward FROM trials ORDER BY seq")
        assert [trial for trial, _ in rows] == ["a", "b"]
        assert all(reward != 0.99 for _, reward in rows)


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
    with Ledger.open(directory, key=find_key(tmp_path)) as ledger:
        append_review(ledger, find_trial(ledger, "a"), "fail", reviewer="ana", note="")
        ledger.refresh()
    assert verify_ledger(directory).notes == []
    with sqlite3.connect(index_of(directory)) as index:
        index.execute(change)
    index.close()
    assert "was made anew" in "".join(verify_ledger(directory).notes)
    assert verify_ledger(directory).notes == []


def test_an_index_that_is_no_database_is_made_anew(tmp_path: Path) -> None:
    ledger = small(tmp_path, "a")
    index_of(ledger).write_bytes(b"garbage" * 1000)
    assert "was made anew" in "".join(verify_ledger(ledger).notes)
