"""What names a run, and where output goes: alike for every command about runs."""

from pathlib import Path

import pytest

from tests.audit.directories import COPIED
from tests.cli.programs import Proctor, run_child
from tests.ordinary_user import ordinary_home, run_as_ordinary_user

JOB = COPIED / "04-binary-scripted-k5"


@pytest.fixture
def ledger(proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with the experiment `nightly`, in a directory that is empty otherwise."""
    place = tmp_path / "ledger"
    trials = sorted(JOB.glob("pass-two__*"))
    key = tmp_path / "key"
    assert proctor("ledger", "init", "--ledger", place, "--key", key).code == 0
    sealing = ("--experiment", "nightly", "--ledger", place, "--key", key)
    assert proctor("ledger", "seal", *trials, *sealing).code == 0
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return place


ASKED = [
    ["compare", "{}", "nightly"],
    ["compare", "nightly", "{}"],
    ["report", "{}"],
    ["gate", "{}", "--min-mean", "0"],
    ["gate", "nightly", "--against", "{}"],
    ["check", "{}", "--policy", "leaderboard"],
]


@pytest.mark.parametrize("words", ASKED, ids=" ".join)
def test_an_experiment_that_is_not_there_is_told_with_those_that_are(
    proctor: Proctor, ledger: Path, words: list[str]
) -> None:
    ran = proctor(*(word.format("nowhere") for word in words), "--ledger", ledger)
    assert (ran.code, ran.out) == (2, "")
    assert "no trial of the experiment 'nowhere' is sealed; there are nightly" in ran.err


@pytest.mark.parametrize("words", ASKED[:-1], ids=" ".join)
def test_an_empty_name_is_told(proctor: Proctor, ledger: Path, words: list[str]) -> None:
    ran = proctor(*(word.format("") for word in words), "--ledger", ledger)
    assert (ran.code, ran.out) == (2, "")
    assert "is empty; expected" in ran.err


@pytest.mark.parametrize("words", ASKED, ids=" ".join)
def test_a_ledger_is_no_run(proctor: Proctor, ledger: Path, words: list[str]) -> None:
    ran = proctor(*(word.format(ledger) for word in words), "--ledger", ledger)
    assert (ran.code, ran.out) == (2, "")
    assert f"{ledger}: a ledger; " in ran.err


@pytest.mark.parametrize("words", ASKED, ids=" ".join)
def test_a_job_may_be_named_beside_a_ledger(
    proctor: Proctor, ledger: Path, words: list[str]
) -> None:
    allowed = ["--allow-unlike", "--common"] if words[0] == "compare" else []
    ran = proctor(*(word.format(JOB) for word in words), *allowed, "--ledger", ledger)
    assert ran.code in (0, 1), ran.err


def test_a_dash_is_stdout_or_refused_and_never_a_file(proctor: Proctor, ledger: Path) -> None:
    said = proctor("report", "nightly", "-o", "-", "--format", "markdown", "--ledger", ledger)
    assert (said.code, said.out[:2]) == (0, "# ")
    for words in (["gate", "nightly", "--min-mean", "0", "--junit", "-"],):
        ran = proctor(*words, "--ledger", ledger)
        assert (ran.code, ran.out) == (2, "")
        assert "is -; expected a file" in ran.err
    assert list(Path.cwd().iterdir()) == []


def test_two_outputs_in_one_file_are_refused(proctor: Proctor, ledger: Path) -> None:
    both = ("--junit", "gate", "--markdown", "./gate")
    ran = proctor("gate", "nightly", "--min-mean", "0", *both, "--ledger", ledger)
    assert ran.code == 2
    assert "--junit and --markdown are both gate; expected two files" in ran.err
    assert not Path("gate").exists()


@pytest.mark.parametrize(("closed", "code", "gate"), [(".", 2, 2), ("entries", 1, 5)])
def test_a_ledger_that_may_not_be_read_is_told_as_such(closed: str, code: int, gate: int) -> None:
    with ordinary_home() as home:
        ledger = home / "ledger"
        making = ("--ledger", ledger, "--key", home / "key")
        assert run_child("ledger", "init", *making).code == 0
        trial = next(iter(sorted(JOB.glob("pass-two__*"))))
        assert run_child("ledger", "seal", trial, "--experiment", "nightly", *making).code == 0
        (ledger / closed).chmod(0o000)
        for words in (["board"], ["report", "nightly"], ["gate", "nightly", "--min-mean", "0"]):
            ran = run_as_ordinary_user("proctor", *words, "--ledger", ledger, home=home)
            assert ran.code == (gate if words[0] == "gate" else code), ran.err
            assert "Permission denied" in ran.out + ran.err
            assert "Traceback" not in ran.err
        (ledger / closed).chmod(0o755)
