"""What `proctor export` writes is taken by the formats' own readers."""

from importlib import import_module
from pathlib import Path

import pytest

from proctor.exchange.atif import export_trials as export_atif
from proctor.exchange.exporting import Exporter, Selection
from proctor.ledger.ledger import OpenLedger
from proctor.ledger.query import list_trials
from tests.conformance.theirs import harbor_module
from tests.exchange.sealed import (
    ATIF,
    CONVERSATION,
    CONVERSED,
    DATA,
    TRAJECTORY,
    seal_job,
    trajectory,
)
from tests.ledger.trials import open_ledger, seal_files

JOBS = [
    *("06-errors-oracle-k1", "10-multistep-oracle-mounted", "14-two-models"),
    *("16-agent-nonzero", "17-agent-hang"),
]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a ledger with real trials of many kinds, and with every kind of trace, is."""
    directory = tmp_path_factory.mktemp("exports")
    with open_ledger(directory) as ledger:
        for job in JOBS:
            seal_job(ledger, job)
        for path in sorted(CONVERSED.glob("*.jsonl")):
            seal_files(ledger, path.stem, {CONVERSATION: path.read_bytes()})
        seal_files(ledger, "own", {TRAJECTORY: trajectory()})
        seal_files(ledger, "torn", {TRAJECTORY: trajectory()[:-30]})
        steps = {f"steps/{step}/{TRAJECTORY}": trajectory() for step in ("one", "two")}
        seal_files(ledger, "several", steps)
        every = (DATA / "atif" / "every-field.json").read_bytes()
        seal_files(ledger, "every-field", {ATIF: every})
    return directory / "ledger"


def exported(ledger: Path, export_trials: Exporter, target: Path) -> Path:
    with OpenLedger.open(ledger) as opened:
        export_trials(Selection(opened, list_trials(opened), is_all=True), target)
    return target


def test_harbors_validator_takes_every_document(everything: Path, tmp_path: Path) -> None:
    documents = sorted(exported(everything, export_atif, tmp_path / "o").rglob("trajectory.json"))
    assert len(documents) == 30
    validator = harbor_module("harbor.utils.trajectory_validator")
    for path in documents:
        judge = validator.TrajectoryValidator()
        assert judge.validate(path, validate_images=False), (path, judge.get_errors())


def test_the_package_atif_takes_every_document(everything: Path, tmp_path: Path) -> None:
    model = import_module("atif").Trajectory
    for path in exported(everything, export_atif, tmp_path / "o").rglob("trajectory.json"):
        assert model.model_validate_json(path.read_bytes()).steps, path
