"""Sealed trials as a table: every field of a record has its column, and nothing goes in silence."""

import json
from pathlib import Path
from typing import Any

from tests.cli.programs import Proctor
from tests.exporters.sealed import EXPERIMENT, lost_of, seal_job
from tests.lazy_imports import LazyModule
from tests.ledger.trials import open_ledger, seal_files

PARQUET = LazyModule("pyarrow.parquet")


def exported(proctor: Proctor, tmp_path: Path) -> list[dict[str, Any]]:
    options = ("--ledger", tmp_path / "ledger", "--format", "parquet")
    ran = proctor("export", *options, "-o", tmp_path / "out.parquet")
    assert (ran.code, ran.err) == (0, "")
    rows: list[dict[str, Any]] = PARQUET.read_table(tmp_path / "out.parquet").to_pylist()
    return rows


def test_of_real_trials_only_the_evidence_itself_is_lost(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_job(ledger, "10-multistep-oracle-mounted")
        seal_job(ledger, "06-errors-oracle-k1")
    rows = {row["task_id"]: row for row in exported(proctor, tmp_path)}
    assert len(rows) == 14
    assert json.loads(rows["ms-mean"]["reward_breakdown"])["part1"] == 1 / 6
    assert rows["build-fail"]["reward"] is None, "not scored is not 0"
    assert rows["build-fail"]["reason_code"] == "harbor_trial_failed"
    assert rows["ms-mean"]["verification_seconds"] == 0.128202
    assert json.loads(rows["ms-mean"]["evidence"])[0]["sha256"]
    for row in rows.values():
        name = f"{row['experiment_id']}/{row['trial_id']}"
        assert set(lost_of(tmp_path / "out.parquet.losses.jsonl", name)) == {"evidence"}


def test_what_a_column_cannot_hold_is_named(proctor: Proctor, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"cost.tokens_in": 1 << 70, "evaluation.breakdown": {"x": 1}}
    with open_ledger(tmp_path) as ledger:
        seal_files(ledger, "large", {"a.txt": b"x"}, **changes)
    (row,) = exported(proctor, tmp_path)
    assert row["tokens_in"] is None
    assert row["tokens_out"] is not None
    lost = lost_of(tmp_path / "out.parquet.losses.jsonl", f"{EXPERIMENT}/large")
    assert lost["record.cost.tokens_in"] == "there is no place for it"
