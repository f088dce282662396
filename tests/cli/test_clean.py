"""`proctor clean`."""

import json
import os
from pathlib import Path

import pytest

from proctor.environments.sandbox.scratch import TEMPORARY, make_temporary
from proctor.ledger.derived import find_folder
from tests.cli.programs import Proctor
from tests.environments.test_scratch import killed_run


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a killed run left."""
    monkeypatch.setenv("PROCTOR_SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "trials" / "t1").mkdir(parents=True)
    return killed_run(tmp_path / "trials", "t1")


@pytest.fixture
def clean_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of anybody."""
    monkeypatch.setenv("PROCTOR_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.process
@pytest.mark.usefixtures("clean_machine")
def test_nothing_to_clean_is_said(proctor: Proctor, tmp_path: Path) -> None:
    ran = proctor("clean")
    assert (ran.code, ran.out, ran.err) == (0, "nothing to clean\n", "")
    assert not (tmp_path / "scratch").exists()


def test_a_killed_run_is_cleaned_and_every_deed_printed(
    proctor: Proctor, left: Path, tmp_path: Path
) -> None:
    ran = proctor("clean")
    assert ran.code == 0
    log = tmp_path / "trials" / "t1" / "agent" / "log.txt"
    assert f"copied into its trial: {log}\n" in ran.out
    assert f"deleted: {left}/t1." in ran.out
    assert "kept: link: " in ran.out
    assert not left.exists()


def test_a_dry_run_says_what_would_be_done(proctor: Proctor, left: Path) -> None:
    ran = proctor("clean", "--dry-run")
    assert f"would be deleted: {left}/t1." in ran.out
    assert left.exists()
    proctor("clean")


def test_json_is_one_document(proctor: Proctor, left: Path) -> None:
    ran = proctor("clean", "--json")
    document = json.loads(ran.out)
    assert document["dry_run"] is False
    assert left.name in document["runs"]
    assert len(document["salvaged"]) == 4
    assert set(document) == {
        *("dry_run", "runs", "scratch", "processes", "cgroups", "containers", "images"),
        *("salvaged", "kept", "indexes"),
    }


# Indexes may also be in a temporary directory, where those of other programs' ledgers are.
@pytest.mark.usefixtures("clean_machine", "left")
def test_indexes_of_deleted_ledgers_are_one_line(proctor: Proctor, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert find_folder(tmp_path / name) is not None
    said = "removed: cached indexes of 2 ledgers, deleted since; --json lists them\n"
    assert proctor("clean", "--dry-run").out.endswith(f"would be {said}")
    document = json.loads(proctor("clean", "--dry-run", "--json").out)
    assert sorted(document["indexes"]) == [str(tmp_path / "one"), str(tmp_path / "two")]
    assert proctor("clean").out.endswith(f"\n{said}")
    assert "indexes" not in proctor("clean").out


@pytest.mark.process
@pytest.mark.usefixtures("clean_machine")
def test_what_killed_trials_left_on_a_machine_of_a_cluster_is_deleted_after_a_while(
    proctor: Proctor, tmp_path: Path
) -> None:
    places = [tmp_path / "cache" / "cluster" / "trials" / name for name in ("new", "old")]
    for place in places:
        (place / "t__abc1234").mkdir(parents=True)
        # Hours ago: what counts is when a sweep first found it.
        os.utime(place, (0, 0))
    (places[1] / "left").touch()
    os.utime(places[1] / "left", (0, 0))
    assert f"would be deleted: {places[1]}\n" in proctor("clean", "--dry-run").out
    assert places[1].exists()
    found = json.loads(proctor("clean", "--json").out)
    assert (found["scratch"], [place.exists() for place in places]) == (
        [str(places[1])],
        [True, False],
    )
    (kept,) = found["kept"]
    assert kept.startswith(f"{places[0]}: the job of this killed trial may still fetch it")


def test_the_job_of_a_killed_shell_is_deleted_and_that_of_a_living_one_is_not(
    proctor: Proctor, left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living = make_temporary()
    dead = tmp_path / f"{TEMPORARY}{left.name}.abc"
    (dead / "shell").mkdir(parents=True)
    assert f"would be deleted: {dead}\n" in proctor("clean", "--dry-run").out
    assert f"\ndeleted: {dead}\n" in proctor("clean").out
    assert (living.exists(), dead.exists()) == (True, False)
