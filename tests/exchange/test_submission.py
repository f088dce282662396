"""What somebody names to be sealed: records of every generation, and trials as they lie there."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import InputError, NotSealedError, RecordError
from proctor.exchange.submission import SealOptions, find_submissions
from proctor.ledger.sealing import Submission, check_submission
from tests.audit.directories import COPIED
from tests.exchange.trials import TRIALS, copy_trial, find_task
from tests.ledger.ledgers import record_bytes
from tests.record.samples import DATA

NIGHTLY = SealOptions(experiment="nightly")


def submit(path: Path, asked: SealOptions = NIGHTLY) -> Submission:
    (found,) = find_submissions(path, asked)
    return found


def certificate(submission: Submission) -> dict[str, Any]:
    assert submission.score is not None
    assert submission.score.certificate is not None
    return submission.score.certificate


@pytest.mark.parametrize("trial", TRIALS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_real_trial_can_be_sealed(trial: Path) -> None:
    found = submit(trial)
    check_submission(found)
    reward = json.loads(found.record)["evaluation"]["reward"]
    assert reward is not None or found.reason_code or certificate(found)["rewards"]
    names = {path.relative_to(trial).as_posix() for path in trial.rglob("*") if path.is_file()}
    assert set(found.evidence) == names


@pytest.mark.parametrize(
    ("job", "task", "reason"),
    [
        ("06-errors-oracle-k1", "verifier-timeout", "harbor_verifier_timeout_error"),
        ("06-errors-oracle-k1", "build-timeout", "harbor_environment_start_timeout_error"),
        ("06-errors-oracle-k1", "agent-timeout", None),
        ("04-binary-scripted-k5", "pass-two", None),
    ],
)
def test_a_reason_is_given_where_there_is_no_score(job: str, task: str, reason: str) -> None:
    trial = min((COPIED / job).glob(f"{task}__*"))
    assert submit(trial).reason_code == reason


def test_the_score_is_an_operand_to_the_last_bit(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    (trial / "verifier" / "reward.txt").write_text("0.1")
    found = submit(trial)
    operand = certificate(found)
    assert found.score is not None
    assert found.score.profile == "harbor-0.13.1"
    assert operand["rewards"] == {"reward": (0.1).hex()}
    assert (operand["trial"], operand["basis"]) == (trial.name, "reward file")
    assert found.source is not None
    assert (found.source.kind, found.source.name) == ("harbor", "04-binary-scripted-k5")
    assert found.cost_basis == "reported"


def test_with_its_task_the_record_is_complete(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    asked = SealOptions(experiment="e", task=str(find_task(trial)), dataset_id="set@1")
    found = submit(trial, asked)
    record = json.loads(found.record)
    assert (record["completeness"], record["dataset_id"]) == ("complete", "set@1")
    check_submission(found)


def test_kept_attempts_of_a_harbor_trial_come_before_it(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path)
    shutil.copytree(trial, tmp_path / "kept")
    (trial / "attempts").mkdir()
    (tmp_path / "kept").rename(trial / "attempts" / "1")
    found = list(find_submissions(trial, NIGHTLY))
    names = [json.loads(each.record)["trial_id"] for each in found]
    assert names == [f"{trial.name}.attempt-1", trial.name]
    assert [certificate(each)["trial"] for each in found] == names
    assert found[0].evidence == found[1].evidence
    assert {each.source.name for each in found if each.source} == {"04-binary-scripted-k5"}


def test_a_record_of_the_second_generation_takes_the_original_along() -> None:
    path = DATA / "g2" / "experiment-001" / "trial-004.json"
    found = submit(path, SealOptions())
    assert "schema_version" not in json.loads(found.record)
    assert found.evidence[0] == "trial-004.json"
    assert found.evidence[1].startswith("_runs/")
    check_submission(found)


def test_a_record_that_names_its_files_inside_a_container_stands_alone() -> None:
    found = submit(DATA / "g1-complete.json", SealOptions())
    check_submission(found)
    assert found.evidence == ()
    assert found.findings[0]["detail"] == {"files": ["/workspace/conversation.jsonl"]}


def test_a_torn_result_is_a_reason_and_no_hindrance(tmp_path: Path) -> None:
    trial = tmp_path / "one"
    trial.mkdir()
    (trial / "result.json").write_text('{"task_name": ')
    (trial / "record.json").write_bytes(record_bytes("one"))
    found = submit(trial, SealOptions())
    assert (found.score, found.reason_code) == (None, "harbor_trial_result_malformed")


@pytest.mark.parametrize(
    ("name", "text"),
    [("record.json", "{"), ("findings.json", "{}"), ("findings.json", "\xff")],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "record.json").write_bytes(record_bytes("one"))
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(NotSealedError):
        submit(tmp_path, SealOptions())


def test_a_record_of_another_experiment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(record_bytes("one"))
    with pytest.raises(RecordError, match="of experiment 'experiment-001', not 'nightly'"):
        submit(tmp_path / "r.json")


@pytest.mark.parametrize("experiment", ["../x", "", "a b"])
def test_an_experiment_that_is_no_name_is_refused(tmp_path: Path, experiment: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "record.json").write_bytes(record_bytes("one"))
    for path in (tmp_path, TRIALS[0]):
        with pytest.raises(InputError, match="experiment is"):
            submit(path, SealOptions(experiment=experiment))
