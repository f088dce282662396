"""`proctor export` to other systems: nothing replaced, half-written or left unsaid."""

import json
import zipfile
from pathlib import Path

import pytest

from tests.cli.programs import Proctor
from tests.exchange.sealed import ATIF, EXPERIMENT, TRAJECTORY, atif, small_ledger, trajectory
from tests.ledger.trials import open_ledger, seal_files

FORMS = ["atif", "inspect", "parquet"]
WHY = {"reason": "a key leaked", "author": "ana"}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with two trials, each with a trace."""
    return small_ledger(tmp_path, {"a": {TRAJECTORY: trajectory()}, "b": {ATIF: atif()}})


@pytest.mark.parametrize("form", FORMS)
def test_every_form_counts_its_losses_and_names_the_file(
    proctor: Proctor, ledger: Path, tmp_path: Path, form: str
) -> None:
    ran = proctor("export", "--ledger", ledger, "--format", form, "-o", tmp_path / "o", "--json")
    assert (ran.code, ran.err) == (0, "")
    facts = json.loads(ran.out)
    assert (facts["trials"], facts["refused"]) == (2, [])
    assert len(Path(facts["loss_report"]).read_bytes().splitlines()) == facts["losses"] > 0


@pytest.mark.parametrize("form", FORMS)
def test_what_is_there_stays_and_nothing_half_written_is_left(
    proctor: Proctor, ledger: Path, tmp_path: Path, form: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "taken").mkdir()
    for target, found in (
        (place / "taken", "an export does not replace files"),
        (place / "no" / "where", "where: cannot be written: No such file or directory\n"),
    ):
        ran = proctor("export", "--ledger", ledger, "--format", form, "-o", target)
        assert ran.code == 2
        assert found in ran.err
    assert [path.name for path in place.iterdir()] == ["taken"]


@pytest.mark.parametrize("form", FORMS)
def test_a_loss_report_of_somebody_else_stays(
    proctor: Proctor, ledger: Path, tmp_path: Path, form: str
) -> None:
    beside = tmp_path / "o.losses.jsonl"
    beside.write_text("mine")
    ran = proctor("export", "--ledger", ledger, "--format", form, "-o", tmp_path / "o")
    is_file = form == "parquet"
    assert ran.code == (2 if is_file else 0)
    assert beside.read_text() == "mine"
    assert (tmp_path / "o").exists() is not is_file


@pytest.mark.parametrize("form", FORMS)
def test_options_that_mean_nothing_are_said(
    proctor: Proctor, ledger: Path, tmp_path: Path, form: str
) -> None:
    target = tmp_path / "o"
    ran = proctor(
        "export", "--ledger", ledger, "--format", form, "-o", target, "--where", "trial=z"
    )
    assert ran.code == 2
    assert "no trial matches these options" in ran.err
    assert not target.exists()


@pytest.mark.parametrize("form", FORMS)
def test_a_withheld_trial_is_left_out_and_said(proctor: Proctor, tmp_path: Path, form: str) -> None:
    with open_ledger(tmp_path) as ledger:
        for name in ("a", "b"):
            seal_files(ledger, name, {TRAJECTORY: trajectory() + b" " * len(name)})
        ledger.withhold(ledger.find("a"), **WHY)
    target = tmp_path / "o"
    ran = proctor("export", "--ledger", Path(ledger.where), "--format", form, "-o", target)
    assert ran.code == 3
    assert f"left out: {EXPERIMENT}/a: withheld" in ran.out
    alone = proctor(
        *("export", "--ledger", Path(ledger.where), "--format", form),
        *("-o", tmp_path / "alone", "--where", "trial=a"),
    )
    assert alone.code == 2
    assert not (tmp_path / "alone").exists()


def test_withheld_evidence_is_named_and_the_rest_is_told(proctor: Proctor, tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        seal_files(ledger, "a", {TRAJECTORY: trajectory(), "log.txt": b"x"})
        ledger.withhold(ledger.find("a"), evidence=[TRAJECTORY], **WHY)
    ran = proctor(
        *("export", "--ledger", Path(ledger.where), "--format", "inspect", "-o", tmp_path / "o")
    )
    assert ran.code == 3
    assert f"left out: {EXPERIMENT}/a: evidence '{TRAJECTORY}' is withheld" in ran.out
    (path,) = (tmp_path / "o").glob("*.eval")
    with zipfile.ZipFile(path) as log:
        (sample,) = (name for name in log.namelist() if name.startswith("samples/"))
        assert json.loads(log.read(sample))["messages"] == []


def test_evidence_that_is_gone_without_a_word_is_damage(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    for path in (ledger / "artifacts").rglob("*.zst"):
        path.unlink()
    ran = proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "o")
    assert ran.code == 1
    assert "is missing" in ran.err
    assert not (tmp_path / "o").exists()


def test_control_sequences_of_a_trial_do_not_reach_the_terminal(
    proctor: Proctor, tmp_path: Path
) -> None:
    evil = trajectory({"role": "assistant", "step": 1, "content": "\x1b[2J", "\x1b]0;x\x07": 1})
    ledger = small_ledger(tmp_path, {"a": {TRAJECTORY: evil}})
    ran = proctor("export", "--ledger", ledger, "--format", "atif", "-o", tmp_path / "o")
    assert ran.code == 0
    assert "\x1b" not in ran.out
    for path in (tmp_path / "o").rglob("*.json*"):
        assert b"\x1b" not in path.read_bytes()
