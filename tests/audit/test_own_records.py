"""record.json of a trial, compared with its reward files and its result."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import Verdict, audit_job
from proctor.cli.gate import command as gate
from tests.audit.directories import (
    COPIED,
    Document,
    copy_job,
    edit_json,
    every_job,
    find_trial,
    make_job,
    publish,
    set_reward,
    write_json,
    write_record,
)

TIMES = {"started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:01Z"}
DAMAGED = 5


def make_recorded(job: Path, rewards: str = "1") -> Path:
    """The trial of a job of one, with a record."""
    trial = find_trial(make_job(job, {"a": [rewards]}), "a")
    edit_json(trial / "result.json", lambda result: result.update(TIMES))
    write_record(trial)
    return trial


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    return make_recorded(tmp_path / "job")


def find_differences(trial: Path) -> list[Finding]:
    return audit_job(str(trial.parent)).differences


def raise_all(trial: Path, reward: float) -> None:
    """A consistent forgery, but for the record."""
    (trial / "verifier" / "reward.txt").write_text(str(reward))
    set_reward(trial, reward)
    publish(trial.parent)


def edit_evaluation(trial: Path, **fields: Document) -> None:
    edit_json(trial / "record.json", lambda record: record["evaluation"].update(fields))


def test_a_record_that_was_forgotten_is_the_cause(trial: Path) -> None:
    raise_all(trial, 0.5)
    (finding,) = audit_job(str(trial.parent)).causes
    assert finding == Finding(
        Kind.EDITED_RECORD,
        f"{trial}/record.json",
        'the record has {"reward": 1.0}, the trial\'s other files have {"reward": 0.5}',
        '{"reward": 1.0}',
        '{"reward": 0.5}',
    )


def test_a_gate_that_checks_evidence_fails(trial: Path) -> None:
    asked = [str(trial.parent), "--min-mean", "0.1", "--check-evidence"]
    assert CliRunner().invoke(gate, asked, standalone_mode=False).return_value == 0
    raise_all(trial, 0.5)
    result = CliRunner().invoke(gate, asked, standalone_mode=False)
    assert result.return_value == DAMAGED
    assert "the record has" in result.stdout


@pytest.mark.parametrize("text", ["nan", "inf", "1", "0", "-0.0", "1e300"])
def test_a_record_stores_every_number_its_own_way(tmp_path: Path, text: str) -> None:
    assert find_differences(make_recorded(tmp_path / "job", text)) == []


def test_of_several_rewards_each_is_compared(trial: Path) -> None:
    (trial / "verifier" / "reward.txt").unlink()
    rewards = {"a": 1, "b": 10**400}
    write_json(trial / "verifier" / "reward.json", rewards)
    edit_json(
        trial / "result.json", lambda result: result.update(verifier_result={"rewards": rewards})
    )
    publish(trial.parent)
    write_record(trial)
    # That no metric is published for such a number is a difference of its own.
    assert [found.kind for found in find_differences(trial)] == [Kind.EDITED_METRIC]
    edit_evaluation(trial, breakdown={"a": 0, "b": str(10**400)})
    (finding,) = audit_job(str(trial.parent)).causes
    assert finding.kind is Kind.EDITED_RECORD


@pytest.mark.parametrize("breakdown", [None, {"rubric": {"style": 3}}])
def test_a_record_of_another_program_is_compared_by_its_reward(
    trial: Path, breakdown: Document
) -> None:
    edit_evaluation(trial, breakdown=breakdown)
    assert find_differences(trial) == []
    edit_evaluation(trial, reward=0.0)
    (finding,) = find_differences(trial)
    assert finding.found == "the reward 0.0"


@pytest.mark.parametrize(("key", "field"), [("trial_id", None), ("task_id", "task")])
def test_a_record_of_another_trial_or_task_is_named(
    trial: Path, key: str, field: str | None
) -> None:
    def change(record: Document) -> None:
        (record[field] if field else record)[key] = "another"

    edit_json(trial / "record.json", change)
    (finding,) = find_differences(trial)
    assert (finding.kind, finding.found) == (Kind.EDITED_RECORD, "another")
    assert f"the record has the {key} another" in finding.message


def test_an_exception_that_only_the_record_has_is_named(tmp_path: Path) -> None:
    job = copy_job("06-errors-oracle-k1", tmp_path)
    trial = find_trial(job, "agent-timeout")
    write_record(trial)
    assert audit_job(str(job)).differences == []
    edit_json(trial / "result.json", lambda result: result.update(exception_info=None))
    (trial / "exception.txt").unlink()
    publish(job)
    (finding,) = audit_job(str(job)).causes
    assert (finding.kind, finding.expected) == (Kind.EDITED_RECORD, "none")


def test_an_exception_after_the_record_was_written_is_honest(tmp_path: Path) -> None:
    job = copy_job("06-errors-oracle-k1", tmp_path)
    trial = find_trial(job, "agent-timeout")
    write_record(trial)
    edit_evaluation(trial, error_taxonomy=None)
    assert audit_job(str(job)).differences == []


def test_a_record_of_an_earlier_phase_says_nothing_about_the_end(trial: Path) -> None:
    errors = ["the trial did not end: it was in its verify phase"]
    validity = {"output_parseable": False, "schema_valid": False, "verifier_completed": False}
    edit_evaluation(trial, reward=None, breakdown=None, validity={**validity, "errors": errors})
    assert find_differences(trial) == []


def test_an_edited_result_is_not_blamed_on_the_record(trial: Path) -> None:
    set_reward(trial, 0.5)
    assert Kind.EDITED_RECORD not in {finding.kind for finding in find_differences(trial)}


@pytest.mark.parametrize("text", ["{", "[]", '{"trial_id": "a"}', "\udcff"])
def test_a_record_that_cannot_be_read_is_torn(trial: Path, text: str) -> None:
    (trial / "record.json").write_bytes(text.encode(errors="surrogateescape"))
    (finding,) = find_differences(trial)
    assert (finding.kind, finding.path) == (Kind.TORN_FILE, f"{trial}/record.json")


def test_a_record_that_is_a_link_to_elsewhere_is_not_followed(trial: Path) -> None:
    shutil.move(trial / "record.json", trial.parent.parent / "record.json")
    (trial / "record.json").symlink_to("../../record.json")
    (finding,) = find_differences(trial)
    assert finding.kind is Kind.TORN_FILE
    assert "not followed" in finding.message


@every_job
def test_no_record_of_an_honest_trial_is_accused(name: str, tmp_path: Path) -> None:
    job = tmp_path / name
    shutil.copytree(COPIED / name, job)
    for result in job.glob("*/result.json"):
        write_record(result.parent)
    assert audit_job(str(job)).verdict is Verdict.FOLLOWS
