"""Every command on jobs of strangers with links: none shows a reward from outside the trial."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.ledger.api import Ledger
from proctor.ledger.entry import TrialEntry
from proctor.ledger.query import find_trial as find_sealed
from proctor.web.job_directories import JobFiles
from tests.audit.directories import copy_job, edit_json, find_trial, publish
from tests.cli.programs import Proctor
from tests.exchange.trials import write_record

POLICY = 'format = "proctor-policy-1"\nname = "p"\n[evidence]\nfollows = true\n'


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three trials, whose failure claims 1 from a file beside the job."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    copied = copy_job("01-binary-oracle-k1", tmp_path)
    trial = find_trial(copied, "oracle-wrong")
    (tmp_path / "reward.txt").write_text("1")
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.txt").symlink_to(tmp_path / "reward.txt")
    claim = {"rewards": {"reward": 1.0}}
    edit_json(trial / "result.json", lambda result: result.update(verifier_result=claim))
    return copied


def test_a_reward_from_outside_counts_in_no_command(
    proctor: Proctor, job: Path, tmp_path: Path
) -> None:
    scored = proctor("score", job, "--json")
    document = json.loads(scored.out)
    assert (scored.code, document["denominators"]["scored"]) == (3, 2)
    assert any("is a link that leads out of the trial" in note for note in document["notes"])
    audited = proctor("audit", job)
    assert audited.code == 1
    assert "\n  linked-file  " in audited.out
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    (submission,) = json.loads(proctor("check", job, "--policy", policy, "--json").out)[
        "submissions"
    ]
    assert {failure["code"] for failure in submission["failures"]} == {"not-following"}
    gated = json.loads(proctor("gate", job, "--min-mean", "0.9", "--json").out)
    assert gated["miss"] == "score"
    (group,) = json.loads(proctor("report", job, "--format", "json").out)["groups"]
    assert group["scores"]["account"]["scored"] == 2
    trials = JobFiles(job).look().trials
    assert sum(row.reward == 1.0 for row in trials) == 2
    assert proctor("import", "harbor", job).code == 0
    with Ledger.open(tmp_path / "ledger") as ledger:
        name = find_trial(job, "oracle-wrong").name
        entry = ledger.entry(find_sealed(ledger, f"{job.name}/{name}").seq)
    assert isinstance(entry, TrialEntry)
    assert json.loads(bytes(entry.record))["evaluation"]["reward"] is None


def claim_reward(record: dict[str, Any]) -> None:
    """Make a record say that its answer was read, verified and given the full reward."""
    validity = {"output_parseable": True, "schema_valid": True, "verifier_completed": True}
    record["evaluation"].update(reward=1.0)
    record["evaluation"]["validity"].update(validity)


def test_a_record_that_says_otherwise_is_not_imported(
    proctor: Proctor, job: Path, tmp_path: Path
) -> None:
    """A stranger's record.json would bring the reward in that its files do not give."""
    trial = find_trial(job, "oracle-wrong")
    write_record(trial, tmp_path / "record.json")
    shutil.move(tmp_path / "record.json", trial)
    edit_json(trial / "record.json", claim_reward)
    ran = proctor("import", "harbor", job)
    assert "its record has a reward that its files do not" in ran.out + ran.err
    reported = proctor("report", job)
    said = " ".join(reported.out.split())
    assert "its record has a reward that its files do not" in said


def test_a_reward_from_inside_is_sealed_with_the_bytes_that_were_read(
    proctor: Proctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PROCTOR_LEDGER", str(tmp_path / "ledger"))
    job = copy_job("01-binary-oracle-k1", tmp_path)
    trial = find_trial(job, "pass-two")
    (trial / "verifier" / "reward.txt").rename(trial / "verifier" / "real")
    (trial / "verifier" / "reward.txt").symlink_to("real")
    (trial / "result.json").rename(trial / "kept")
    (trial / "result.json").symlink_to("kept")
    publish(job)
    assert proctor("audit", job).code == 0
    assert proctor("import", "harbor", job).code == 0
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    for thing in (job, job.name):
        ran = proctor("check", thing, "--policy", policy, "--ledger", tmp_path / "ledger")
        assert ran.code == 0, ran.out
