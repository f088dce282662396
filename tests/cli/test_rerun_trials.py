"""Trials that `resume --also` ran again, before those who check them against their ledger."""

import json
from pathlib import Path

import pytest

from tests.audit.directories import edit_json
from tests.cli.programs import Proctor, Ran
from tests.cli.test_run import TASKS

POLICY = 'format = "proctor-policy-1"\nname = "p"\n[evidence]\nfollows = true\n'
UNSCORED = ("-e", "null", "-a", "nop", "--ek", "reward=nothing")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path / "ledger"


@pytest.fixture
def job(proctor: Proctor, ledger: Path, tmp_path: Path) -> Path:
    """Two trials, sealed, and run again twice for the exception that they ended in."""
    place = tmp_path / "jobs" / "j"
    words = ("-p", TASKS / "pass-simple", "-k", "2", "--job-name", "j", "-o", place.parent)
    assert proctor("run", *words, *UNSCORED, "--ledger", ledger).code == 3
    for _ in range(2):
        assert proctor("resume", place, "--also", "VerifierOutputParseError").code == 3
    return place


def check(proctor: Proctor, thing: object, ledger: Path) -> tuple[Ran, list[dict[str, str]]]:
    policy = ledger.parent / "policy.toml"
    ran = proctor("check", thing, "--policy", policy, "--ledger", ledger, "--json")
    (submission,) = json.loads(ran.out)["submissions"]
    return ran, submission["failures"]


def test_a_trial_that_was_run_again_is_no_copy_and_as_sealed(
    proctor: Proctor, job: Path, ledger: Path, tmp_path: Path
) -> None:
    listed = proctor("ledger", "list", "--ledger", ledger)
    assert listed.out.count(".rerun-2") == 2
    assert proctor("audit", job).code == 0
    for thing in (job, "j"):
        ran, failures = check(proctor, thing, ledger)
        assert (ran.code, failures) == (0, [])
    proctor("export", "--format", "harbor", "-o", tmp_path / "out", "--ledger", ledger)
    exported = {path.name for path in (tmp_path / "out" / "j").iterdir()}
    assert exported == {path.name for path in job.glob("*__*")}


def test_what_is_edited_in_such_a_trial_or_in_its_earlier_runs_is_still_found(
    proctor: Proctor, job: Path, ledger: Path
) -> None:
    first, second = sorted(job.glob("*__*"))
    (first / "trial.log").write_text("nothing happened")
    (second / "attempts" / "1" / "trial.log").write_text("nothing happened")
    edit_json(
        second / "attempts" / "2" / "record.json",
        lambda record: record["agent"].update(model="another"),
    )
    ran, failures = check(proctor, job, ledger)
    assert (ran.code, {failure["code"] for failure in failures}) == (1, {"not-as-sealed"})
    named = {failure["trial"] for failure in failures}
    assert {f"j/{first.name}", f"j/{second.name}.attempt-1", f"j/{second.name}.attempt-2"} <= named
