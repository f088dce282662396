"""`proctor audit CLAIM --rerun`: trials of a claim, with the evidence of a ledger."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proctor.job.options import LedgerOptions
from proctor.ledger.artifacts import FileArtifacts
from tests.cli.programs import Proctor, Ran
from tests.rerun.jobs import HONEST, digest_tree, edit_json, only_trial, run_trial, scripted


@dataclass
class Sealed:
    """A trial that was sealed, and the program to ask about it."""

    place: Path
    trial: str
    proctor: Proctor

    @property
    def ledger(self) -> Path:
        return self.place / "ledger"

    def claim(self) -> Path:
        path = self.place / "claim.json.zst"
        path.unlink(missing_ok=True)
        words = ("ledger", "claim", "--experiment", "job", "-o", path, "--ledger", self.ledger)
        assert self.proctor(*words).code == 0
        return path

    def rerun(self, claim: Path, *words: object) -> Ran:
        return self.proctor(
            *("audit", claim, "--rerun", 1, "--ledger", self.ledger),
            *("-o", self.place / "new", *words),
        )

    def told(self, claim: Path) -> dict[str, Any]:
        before = digest_tree(self.ledger / "artifacts")
        ran = self.rerun(claim, "--json")
        assert digest_tree(self.ledger / "artifacts") == before
        (found,) = json.loads(ran.out)["reruns"]
        return {**found, "code": ran.code}

    def digest_of(self, path: str) -> str:
        lines = (self.ledger / "entries" / "000000.jsonl").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        (entry,) = [entry for entry in entries if entry["kind"] == "trial"]
        return str(next(file["sha256"] for file in entry["evidence"] if file["path"] == path))


@pytest.fixture
def sealed(tmp_path: Path, proctor: Proctor) -> Sealed:
    job = run_trial(tmp_path, scripted(tmp_path, HONEST), LedgerOptions(tmp_path / "ledger"))
    return Sealed(tmp_path, only_trial(job).name, proctor)


def test_a_claimed_trial_is_reproduced_from_its_evidence_alone(sealed: Sealed) -> None:
    claim = sealed.claim()
    job = sealed.place / "jobs"
    job.rename(sealed.place / "away")
    found = sealed.told(claim)
    assert (found["verdict"], found["code"]) == ("reproduced", 0)
    assert (found["trial"], found["rewards_then"]) == (sealed.trial, {"reward": 1.0})


def test_withheld_evidence_is_not_replayable_and_the_reason_is_said(sealed: Sealed) -> None:
    before = sealed.claim().read_bytes()
    words = ("--evidence", "agent/trajectory.jsonl", "--reason", "a key in it", "--author", "ana")
    ran = sealed.proctor("ledger", "withhold", sealed.trial, *words, "--ledger", sealed.ledger)
    assert ran.code == 0, ran.err
    found = sealed.told(sealed.claim())
    assert (found["verdict"], found["code"]) == ("not replayable", 3)
    assert found["reason"] == "agent/trajectory.jsonl is withheld: a key in it"
    older = sealed.place / "older"
    older.write_bytes(before)
    assert sealed.told(older)["reason"] == "agent/trajectory.jsonl is not in the ledger"


def test_evidence_that_is_not_what_was_sealed_is_not_run(sealed: Sealed) -> None:
    claim = sealed.claim()
    artifacts = FileArtifacts(sealed.ledger)
    right, other = map(sealed.digest_of, ("agent/trajectory.jsonl", "config.json"))
    artifacts.path_of(right).write_bytes(artifacts.path_of(other).read_bytes())
    found = sealed.told(claim)
    assert (found["verdict"], found["directory"]) == ("not replayable", None)
    assert found["reason"].startswith(f"agent/trajectory.jsonl: artifact {right} h") or (
        "than were sealed" in found["reason"]
    )


@pytest.mark.parametrize(
    ("table", "field", "what"),
    [
        ("agent", "adapter", "agent"),
        ("task", "task_id", "task"),
        ("task", "task_revision", "checksum of the task"),
    ],
)
def test_evidence_of_another_trial_than_the_record_counts_is_not_run(
    tmp_path: Path, proctor: Proctor, table: str, field: str, what: str
) -> None:
    job = run_trial(tmp_path, scripted(tmp_path, HONEST))
    trial = only_trial(job)
    edit_json(trial / "record.json", lambda record: record[table].update({field: "better"}))
    ran = proctor("ledger", "seal", trial, "--ledger", tmp_path / "ledger")
    assert ran.code == 0, ran.err
    doctored = Sealed(tmp_path, trial.name, proctor)
    found = doctored.told(doctored.claim())
    assert (found["verdict"], found["directory"]) == ("not replayable", None)
    assert found["reason"].startswith(f"its record counts the {what} 'better', but its evidence is")


def test_a_claim_that_does_not_hold_is_not_run(sealed: Sealed) -> None:
    path = sealed.place / "claim.json"
    words = ("--experiment", "job", "-o", path, "--ledger", sealed.ledger)
    assert sealed.proctor("ledger", "claim", *words).code == 0
    path.write_text(path.read_text().replace(sealed.trial, f"x{sealed.trial[1:]}"))
    ran = sealed.rerun(path)
    assert ran.code == 1
    assert "are not in the ledger of the checkpoint" in ran.err
    assert not (sealed.place / "new").exists()


def test_a_score_that_does_not_follow_is_not_run(sealed: Sealed) -> None:
    path = sealed.place / "claim.json"
    words = ("--experiment", "job", "-o", path, "--ledger", sealed.ledger)
    assert sealed.proctor("ledger", "claim", *words).code == 0
    edit_json(path, lambda claim: claim["certificate"]["outcome"].update(score="0x1.8p+0"))
    ran = sealed.rerun(path)
    assert ran.code == 1, ran.out
    assert str(path) in ran.err
    assert not (sealed.place / "new").exists()


def test_a_withheld_trial_leaves_nothing_to_run(sealed: Sealed) -> None:
    words = ("--reason", "a key in it", "--author", "ana", "--ledger", sealed.ledger)
    assert sealed.proctor("ledger", "withhold", sealed.trial, *words).code == 0
    ran = sealed.rerun(sealed.claim())
    assert ran.code == 2
    assert "it counts no trial; there is nothing to run again" in ran.err


def test_a_claim_needs_the_ledger_and_a_file_has_to_be_one(sealed: Sealed) -> None:
    claim = sealed.claim()
    ran = sealed.proctor("audit", claim, "--rerun", 1, "--ledger", sealed.place / "nowhere")
    assert ran.code == 2
    assert "not a ledger with evidence; pass the ledger that the claim was made from" in ran.err
    record = sealed.place / "jobs" / "job" / sealed.trial / "record.json"
    ran = sealed.rerun(record)
    assert ran.code == 2
    assert "a trial record; expected a job directory, or a claim" in ran.err
