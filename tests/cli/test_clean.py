"""`proctor clean`."""

import json
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.environments.test_scratch import killed_run


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a killed run left."""
    monkeypatch.setenv("PROCTOR_SCRATCH", str(tmp_path / "scratch"))
    (tmp_path / "trials" / "t1").mkdir(parents=True)
    return killed_run(tmp_path / "trials", "t1")


@pytest.mark.process
def test_nothing_to_clean_is_said(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setenv("PROCTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = proctor("clean")
    assert (ran.code, ran.err) == (0, "")
    assert "killed run" in ran.out
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
