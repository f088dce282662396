"""`proctor import inspect`: counts, exit codes, and what can be done with the trials."""

import json
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.exchange.inspect.logs import (
    HEADER,
    make_sample,
    share_process,
    write_archive,
    write_document,
)


@pytest.fixture(autouse=True)
def shared_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process with inspect_ai for all tests."""
    share_process(monkeypatch)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two samples, one of them twice."""
    samples = [make_sample("a"), make_sample("a", 2), make_sample("b", scores=None)]
    return write_archive(tmp_path / "run.eval", *samples)


def test_samples_are_imported_once(proctor: Proctor, log: Path) -> None:
    ran = proctor("import", "inspect", log)
    assert ran.code == 0
    assert "3 samples found: 3 imported, 0 already there, 0 refused" in ran.out
    assert "next: proctor trace summary arithmetic" in ran.out
    ran = proctor("import", "inspect", log, log.parent)
    assert "3 samples found: 0 imported, 3 already there, 0 refused" in ran.out


def test_imported_trials_are_listed_searched_and_summarised(proctor: Proctor, log: Path) -> None:
    proctor("import", "inspect", log, "--experiment", "nightly")
    listed = json.loads(proctor("ledger", "list", "--json").out)
    assert {row["experiment_id"] for row in listed} == {"nightly"}
    assert sorted(str(row["reward"]) for row in listed) == ["1.0", "1.0", "None"]
    assert "expr 1 + 2" in proctor("show", "nightly/a.epoch-1.Ev1").out
    assert "a.epoch-1.Ev1" in proctor("search", "expr").out
    assert proctor("trace", "summary", "nightly").code == 0


def test_more_of_a_log_can_be_imported_when_it_is_there(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "run.eval"
    header = {**HEADER, "status": "started"}
    write_archive(path, make_sample("a"), header=header)
    ran = proctor("import", "inspect", path)
    assert (ran.code, "its status is started; it may lack samples" in ran.out) == (0, True)
    write_archive(path, make_sample("a"), make_sample("b"))
    ran = proctor("import", "inspect", path)
    assert "2 samples found: 1 imported, 1 already there, 0 refused" in ran.out


def test_a_sample_that_was_changed_is_refused(proctor: Proctor, log: Path) -> None:
    proctor("import", "inspect", log)
    write_archive(log, make_sample("a", scores={"exact": {"value": "I"}}), make_sample("c"))
    ran = proctor("import", "inspect", log)
    assert ran.code == 3
    assert "1 imported, 0 already there, 1 refused" in ran.out
    assert "is sealed already" in ran.out


def test_two_samples_with_one_id_are_not_both_imported(proctor: Proctor, tmp_path: Path) -> None:
    other = make_sample("1", scores={"exact": {"value": "I"}})
    ran = proctor("import", "inspect", write_document(tmp_path / "a.json", make_sample(1), other))
    assert (ran.code, "1 imported, 0 already there, 1 refused" in ran.out) == (3, True)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"{}", b"not json", b'{"eval": 3}'])
def test_what_is_no_log_is_exit_code_2_and_makes_no_ledger(
    proctor: Proctor, tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "a.eval"
    path.write_bytes(data)
    ran = proctor("import", "inspect", path, "--ledger", tmp_path / "new")
    assert (ran.code, str(path) in ran.err) == (2, True)
    assert not (tmp_path / "new").exists()


def test_a_log_without_samples_is_exit_code_2(proctor: Proctor, tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", header={**HEADER, "status": "cancelled"})
    ran = proctor("import", "inspect", path, "--ledger", tmp_path / "new")
    assert (ran.code, "its status is cancelled" in ran.err) == (2, True)
    assert not (tmp_path / "new").exists()


def test_samples_that_are_all_broken_are_exit_code_2(proctor: Proctor, tmp_path: Path) -> None:
    path = write_archive(tmp_path / "a.eval", b"{", b"[]")
    ran = proctor("import", "inspect", path, "--ledger", tmp_path / "new", "--json")
    assert ran.code == 2
    assert len(json.loads(ran.out)["refused"]) == 2
    assert not (tmp_path / "new").exists()


def test_a_cost_basis_that_nobody_knows_is_not_sealed(proctor: Proctor, tmp_path: Path) -> None:
    samples = [
        make_sample(number, metadata={"proctor": {"cost_basis": basis}})
        for number, basis in enumerate(("certified", "x" * 9000, ["reported"]), 1)
    ]
    ran = proctor("import", "inspect", write_archive(tmp_path / "a.eval", *samples))
    assert (ran.code, "3 imported, 0 already there, 0 refused" in ran.out) == (0, True)
    shown = proctor("ledger", "list", "--json").out
    assert "certified" not in shown


def test_a_name_that_is_no_id_is_exit_code_2(proctor: Proctor, log: Path) -> None:
    ran = proctor("import", "inspect", log, "--experiment", "a/b")
    assert (ran.code, "--experiment" in ran.err) == (2, True)


def test_a_secret_is_not_sealed(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "sk-123456")
    path = write_archive(tmp_path / "a.eval", make_sample(store={"x": "sk-123456"}))
    ran = proctor("import", "inspect", path, "--secret-env", "API_KEY")
    assert (ran.code, "contains the value of API_KEY" in ran.out) == (2, True)


def test_an_imported_sample_is_no_trial_of_harbors(
    proctor: Proctor, log: Path, tmp_path: Path
) -> None:
    proctor("import", "inspect", log)
    ran = proctor("export", "--format", "harbor", "-o", tmp_path / "out")
    assert (ran.code, "not a harbor trial" in ran.err) == (2, True)
