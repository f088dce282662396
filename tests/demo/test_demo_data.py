"""Made-up runs: the same bytes every time, sealed as real ones are."""

import hashlib
from pathlib import Path

import pytest

from proctor.audit.job import audit_job
from proctor.demo.catalogue import EXPERIMENTS, TASKS
from proctor.demo.making import DemoSize, make_demo
from proctor.ledger.api import Ledger
from proctor.trial.finding import FindingCode

CHEATING = next(each for each in EXPERIMENTS if each.is_cheating)
HARD = max(TASKS, key=lambda task: task.difficulty)
SMALL = DemoSize(experiments=(EXPERIMENTS[0], CHEATING), tasks=(TASKS[0], HARD), attempts=3)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("demo") / "one"
    make_demo(place, SMALL)
    return place


def digests_of(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_the_same_bytes_are_written_every_time(demo: Path, tmp_path: Path) -> None:
    make_demo(tmp_path / "another-name", SMALL)
    assert digests_of(tmp_path / "another-name") == digests_of(demo)


def test_every_trial_is_complete_and_the_cheat_is_found(demo: Path) -> None:
    with Ledger.open(demo / "ledger") as ledger:
        ledger.refresh()
        rows = ledger.trials()
    assert len(rows) == SMALL.trials
    assert {row.status for row in rows} == {"sealed"}
    planted = [row for row in rows if FindingCode.REWARD_PLANTED in row.findings]
    assert planted
    assert {(row.experiment_id, row.task_id) for row in planted} == {(CHEATING.name, HARD.name)}
    assert "fail" in {row.review for row in planted}


def test_the_published_numbers_of_every_job_follow_from_its_evidence(demo: Path) -> None:
    for experiment in SMALL.experiments:
        assert audit_job(str(demo / "jobs" / experiment.name)).differences == []
