"""Counts and bytes of a ledger add up, whoever shares a file with whom."""

from pathlib import Path

from proctor.ledger.stats import ExperimentStats
from tests.ledger.trials import open_ledger, seal_files


def test_an_empty_ledger_has_one_entry_and_no_trial(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        stats = ledger.stats()
    assert (stats.entries, stats.kinds, stats.experiments) == (1, {"key": 1}, [])
    assert stats.total == ExperimentStats(experiment_id=None)


def test_a_shared_file_counts_once_in_all_and_once_for_each_that_names_it(tmp_path: Path) -> None:
    with open_ledger(tmp_path, "first") as ledger:
        seal_files(ledger, "a", {"x": b"shared" * 999, "y": b"own"}, experiment_id="one")
        seal_files(ledger, "b", {"z": b"shared" * 999}, experiment_id="one")
        seal_files(ledger, "c", {"x": b"shared" * 999}, experiment_id="two")
        stats = ledger.stats()
        on_disk = sum(path.stat().st_size for path in Path(ledger.where).rglob("*.zst"))
        log = sum(path.stat().st_size for path in (Path(ledger.where) / "entries").iterdir())
    found = {each.experiment_id: each for each in stats.experiments}
    assert list(found) == ["experiment-001", "one", "two"]
    assert (found["one"].trials, found["one"].evidence_files, found["one"].artifacts) == (2, 3, 2)
    assert found["one"].evidence_bytes == 2 * 5994 + 3
    assert (stats.total.artifacts, stats.total.compressed_bytes) == (2, on_disk)
    assert found["two"].compressed_bytes < found["one"].compressed_bytes == on_disk
    assert stats.log_bytes == log
    assert stats.total.entry_bytes < log
    assert stats.total.trials == sum(each.trials for each in stats.experiments) == 4


def test_every_status_is_counted(tmp_path: Path) -> None:
    with open_ledger(tmp_path, "a", "b", "c") as ledger:
        seal_files(ledger, "partial", {"x": b"x"}, completeness="partial")
        ledger.supersede(ledger.find("a"), ledger.find("b"), "task", reason="r", author="x")
        ledger.withhold(ledger.find("c"), reason="r", author="x")
        total = ledger.stats().total
        kinds = ledger.stats().kinds
    counts = (total.sealed, total.diagnostic, total.superseded, total.withheld)
    assert counts == (1, 1, 1, 1)
    assert kinds == {"key": 1, "supersede": 1, "trial": 3, "withheld": 1, "withhold": 1}
