"""What the page of a trial says of the agent's changes and of the clean room."""

import re
from pathlib import Path

from proctor.digest import sha256_hex
from proctor.ledger.ledger import OpenLedger
from proctor.web.data_source import DataSource
from tests.ledger.ledgers import EXPERIMENT, artifact_path
from tests.trial.changed import change, changes, differing
from tests.web.sealed import seal_files
from tests.web.test_trial import look

MANY = [change(f"/app/{number}") for number in range(300)]
SYSTEM = change("/etc/ld.so.preload", place="system", how="changed")


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))


def test_changes_are_listed_the_system_first_and_cut(tmp_path: Path) -> None:
    ledger = seal_files(
        tmp_path,
        "one",
        {"changes.jsonl": changes(*MANY, SYSTEM), "clean-room.json": differing()},
    )
    page = look(DataSource(ledger=ledger), f"/trials/{EXPERIMENT}/one").text
    text = text_of(page)
    assert "301 paths differ from the image. The agent changed 1 system, 300 work, 0 home" in text
    assert page.index("/etc/ld.so.preload") < page.index("/app/0<")
    assert "/app/198<" in page
    assert "/app/199<" not in page
    assert "101 more are not shown" in text
    assert "differs: 0.0 against 1.0, 4 paths left out" in text
    assert "clean room 0.0 no 0.1s control 1.0 yes 0.1s" in text


def test_steps_have_their_counts_and_the_last_its_paths(tmp_path: Path) -> None:
    files = {"steps/a/changes.jsonl": changes(SYSTEM), "steps/b/changes.jsonl": changes(*MANY[:2])}
    ledger = seal_files(tmp_path, "one", files, **{"evaluation.reward": 0.0})
    text = text_of(look(DataSource(ledger=ledger), f"/trials/{EXPERIMENT}/one").text)
    assert "After step a : 1 path differs from the image." in text
    assert "/etc/ld.so.preload" not in text
    assert "/app/1 work agent created" in text
    assert "not run: no reward above 0" in text


def test_a_trial_of_which_neither_is_known_has_no_such_section(tmp_path: Path) -> None:
    ledger = seal_files(tmp_path, "one", {"x": b""})
    page = look(DataSource(ledger=ledger), f"/trials/{EXPERIMENT}/one").text
    assert 'id="changes"' not in page
    assert 'id="clean-room"' not in page


def test_what_is_lost_or_no_record_is_said(tmp_path: Path) -> None:
    data = changes(SYSTEM)
    ledger = seal_files(tmp_path, "one", {"changes.jsonl": data, "clean-room.json": b"5"})
    source = DataSource(ledger=ledger)
    page = look(source, f"/trials/{EXPERIMENT}/one").text
    assert "clean-room.json: Expected `object`" in page
    with OpenLedger.open(ledger) as opened:
        path = artifact_path(opened, sha256_hex(data))
        path.write_bytes(artifact_path(opened, sha256_hex(b"5")).read_bytes())
    altered = look(source, f"/trials/{EXPERIMENT}/one")
    assert (altered.status_code, "artifact" in altered.text) == (200, True)
    path.unlink()
    assert "changes.jsonl lost" in text_of(look(source, f"/trials/{EXPERIMENT}/one").text)
