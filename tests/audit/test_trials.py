"""Reward files against trial results, trial by trial."""

import json
import os
from pathlib import Path

import pytest

from proctor.audit.findings import Finding, Kind
from proctor.audit.shown import show_claim, show_verdict
from proctor.audit.trials import audit_trials
from proctor.harbor.documents import VerifierDocument
from proctor.harbor.job import load_job
from proctor.reward.profile import DEFAULT_PROFILE, HARBOR_0_25, Profile
from proctor.reward.steps import Verdict
from tests.audit.directories import (
    COPIED,
    Document,
    edit_config,
    edit_json,
    find_trial,
    make_job,
)


def audit(job: Path, profile: Profile = DEFAULT_PROFILE) -> list[Finding]:
    return list(audit_trials(load_job(str(job), profile), profile))


def kinds(job: Path) -> list[Kind]:
    return [finding.kind for finding in audit(job)]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return make_job(tmp_path / "job", {"a": ["1"]})


@pytest.fixture
def trial(job: Path) -> Path:
    return find_trial(job, "a")


def test_a_claim_and_its_file_are_both_named(job: Path, trial: Path) -> None:
    (trial / "verifier" / "reward.txt").write_text("0.25")
    (finding,) = audit(job)
    assert finding == Finding(
        Kind.EDITED_REWARD,
        f"{trial}/result.json",
        'the trial result claims {"reward": 1.0}, the reward file holds {"reward": 0.25}',
        '{"reward": 1.0}',
        '{"reward": 0.25}',
    )


def test_of_many_rewards_only_those_that_differ_are_named(job: Path, trial: Path) -> None:
    rewards = {"tests": 1.0, "style": 0.5, "speed": 1.0}
    edit_json(
        trial / "result.json", lambda result: result["verifier_result"].update(rewards=rewards)
    )
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.json").write_text(json.dumps({**rewards, "style": 0.25}))
    (finding,) = audit(job)
    said = 'the trial result claims {"style": 0.5}, the reward file holds {"style": 0.25}'
    assert finding.message == said
    assert finding.found == '{"tests": 1.0, "style": 0.5, "speed": 1.0}'


def test_both_reward_files_are_a_note_on_the_one_that_does_not_count(trial: Path) -> None:
    (trial / "verifier" / "reward.json").write_text('{"reward": 1.0}')
    (finding,) = audit(trial.parent)
    assert finding.kind is Kind.UNUSED_REWARD_FILE
    assert finding.path == f"{trial}/verifier/reward.txt"


def test_a_reward_file_of_a_stopped_verifier_is_a_note() -> None:
    (finding,) = audit(COPIED / "06-errors-oracle-k1")
    assert finding.kind is Kind.UNUSED_REWARD_FILE
    assert finding.message.endswith("which does not count: VerifierTimeoutError")


def test_a_reward_file_beside_disabled_verification_is_a_note(job: Path, trial: Path) -> None:
    edit_config(trial, lambda config: config.update(verifier={"disable": True}))
    edit_json(trial / "result.json", lambda found: found.update(verifier_result=None))
    (finding,) = audit(job)
    assert finding.kind is Kind.UNUSED_REWARD_FILE
    assert finding.message.endswith("verification was disabled")


def test_rewards_of_a_custom_verifier_without_files_are_a_note(job: Path, trial: Path) -> None:
    edit_config(trial, lambda config: config.update(verifier={"import_path": "own:Verifier"}))
    (trial / "verifier" / "reward.txt").unlink()
    (finding,) = audit(job)
    assert finding.kind is Kind.NO_REWARD_FILES
    assert "own:Verifier" in finding.message


def test_numbers_that_are_not_finite_are_noted_as_lost() -> None:
    findings = audit(COPIED / "12-nan-oracle")
    assert [finding.kind for finding in findings] == [Kind.LOST_NUMBER] * 2


def test_the_later_profile_does_not_let_nan_follow() -> None:
    findings = audit(COPIED / "12-nan-oracle", HARBOR_0_25)
    edited = [finding for finding in findings if finding.kind is Kind.EDITED_REWARD]
    assert [finding.expected for finding in edited] == ["nothing", "nothing"]


def test_a_claim_of_nan_where_the_file_has_a_number_is_found(job: Path, trial: Path) -> None:
    rewards = {"rewards": {"reward": None}}
    edit_json(trial / "result.json", lambda found: found.update(verifier_result=rewards))
    assert kinds(job) == [Kind.EDITED_REWARD, Kind.LOST_NUMBER]


def test_a_recorded_reward_error_must_fit_the_files(job: Path, trial: Path) -> None:
    failed = {
        "verifier_result": None,
        "verifier": {"started_at": None, "finished_at": None},
        "exception_info": {"exception_type": "VerifierOutputParseError"},
    }
    edit_json(trial / "result.json", lambda found: found.update(failed))
    (trial / "exception.txt").write_text("VerifierOutputParseError: no")
    assert [finding.expected for finding in audit(job) if not finding.kind.is_note] == [
        'rewards {"reward":1.0}'
    ]
    (trial / "verifier" / "reward.txt").write_text("garbage")
    assert kinds(job) == []
    (trial / "verifier" / "reward.txt").unlink()
    assert [finding.expected for finding in audit(job)] == ["RewardFileNotFoundError"]
    (trial / "verifier" / "reward.json").write_text("null")
    assert [finding.expected for finding in audit(job)] == ["no reward and no error"]


def test_an_exception_needs_its_traceback(job: Path, trial: Path) -> None:
    told = {"exception_info": {"exception_type": "RuntimeError"}}
    edit_json(trial / "result.json", lambda found: found.update(told))
    assert kinds(job) == [Kind.EDITED_EXCEPTION]
    (trial / "exception.txt").write_text("ValueError: other")
    assert kinds(job) == [Kind.EDITED_EXCEPTION]
    (trial / "exception.txt").write_text("RuntimeError: this")
    assert kinds(job) == []
    (trial / "exception.txt").unlink()
    (trial / "exception.txt").mkdir()
    assert kinds(job) == [Kind.EDITED_EXCEPTION]


OURS = "1 validation error for VerifierResult"


def fail(trial: Path, error: str, message: str = "", **fields: Document) -> None:
    """Make a trial one that ended with an exception, and not with rewards."""
    told = {"exception_type": error, "exception_message": message}
    verified = {"verifier": {"started_at": None, "finished_at": None}}
    changes = verified | {"verifier_result": None, "exception_info": told} | fields
    edit_json(trial / "result.json", lambda found: found.update(changes))
    (trial / "exception.txt").write_text(f"{error}: {message}")


def test_a_validation_error_of_harbor_must_fit_the_files(job: Path, trial: Path) -> None:
    fail(trial, "ValidationError", OURS)
    assert kinds(job) == [Kind.UNUSED_REWARD_FILE, Kind.EDITED_EXCEPTION]
    (trial / "verifier" / "reward.json").write_text('{"reward": "much"}')
    assert kinds(job) == []


def test_a_validation_error_of_an_agent_is_no_edited_exception(job: Path, trial: Path) -> None:
    fail(trial, "ValidationError", "1 validation error for ToolCall")
    assert kinds(job) == [Kind.UNUSED_REWARD_FILE]


def test_an_error_before_verification_is_not_checked(job: Path, trial: Path) -> None:
    fail(trial, "RewardFileNotFoundError", verifier=None)
    assert kinds(job) == [Kind.UNUSED_REWARD_FILE]


def test_an_error_of_a_custom_verifier_is_not_checked(job: Path, trial: Path) -> None:
    fail(trial, "RewardFileNotFoundError")
    assert kinds(job) == [Kind.UNUSED_REWARD_FILE, Kind.EDITED_EXCEPTION]
    edit_config(trial, lambda config: config.update(verifier={"import_path": "own:Verifier"}))
    assert kinds(job) == [Kind.UNUSED_REWARD_FILE]


def make_sparse(path: Path) -> None:
    """A file of 300 MB that takes no room."""
    with path.open("wb") as file:
        file.truncate(300_000_000)


@pytest.mark.parametrize("name", ["reward.txt", "reward.json"])
def test_a_reward_file_that_cannot_be_read_is_a_torn_file_and_named(
    job: Path, trial: Path, name: str
) -> None:
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / name).mkdir()
    (finding,) = audit(job)
    assert (finding.kind, finding.path) == (Kind.TORN_FILE, f"{trial}/verifier")
    assert f"{trial}/verifier/{name}" in finding.message


@pytest.mark.parametrize("name", ["reward.txt", "reward.json"])
def test_a_reward_file_of_hundreds_of_megabytes_gives_no_reward(
    job: Path, trial: Path, name: str
) -> None:
    (trial / "verifier" / "reward.txt").unlink()
    make_sparse(trial / "verifier" / name)
    (finding,) = audit(job)
    assert finding.kind is Kind.EDITED_REWARD
    assert finding.path == f"{trial}/result.json"


def test_a_reward_file_that_cannot_be_read_is_torn_also_without_a_claim(
    job: Path, trial: Path
) -> None:
    edit_json(trial / "result.json", lambda found: found.update(verifier_result=None))
    (trial / "verifier" / "reward.json").mkdir()
    assert kinds(job) == [Kind.TORN_FILE]


def test_a_trial_has_rewards_or_an_exception(job: Path, trial: Path) -> None:
    edit_json(trial / "result.json", lambda found: found.update(verifier_result=None))
    (trial / "verifier" / "reward.txt").write_text("")
    (finding,) = audit(job)
    assert (finding.kind, finding.expected) == (Kind.EDITED_EXCEPTION, "RewardFileEmptyError")


def test_a_pipe_for_a_reward_file_is_an_empty_one(job: Path, trial: Path) -> None:
    (trial / "verifier" / "reward.txt").unlink()
    os.mkfifo(trial / "verifier" / "reward.txt")
    assert [(found.kind, found.expected) for found in audit(job)] == [
        (Kind.EDITED_REWARD, "nothing")
    ]


def test_a_verifier_that_said_null_is_shown_so(job: Path, trial: Path) -> None:
    (trial / "verifier" / "reward.json").write_text("null")
    (finding,) = audit(job)
    assert (finding.found, finding.expected) == ('{"reward": 1.0}', "null")


def test_a_broken_trial_is_a_torn_file(job: Path, trial: Path) -> None:
    (trial / "result.json").write_text('{"task_name": 5}')
    (finding,) = audit(job)
    assert (finding.kind, finding.path) == (Kind.TORN_FILE, f"{trial}/result.json")
    assert "not as harbor writes it" in finding.message


@pytest.mark.parametrize(
    ("rewards", "text"),
    [
        ({"a": 1, "b": float("nan")}, '{"a": 1, "b": nan}'),
        ({}, "{}"),
        (None, "null"),
    ],
)
def test_rewards_are_shown_with_all_their_digits(
    rewards: dict[str, int | float] | None, text: str
) -> None:
    assert show_verdict(Verdict(rewards)) == text


def test_claims_are_shown_as_they_are_written() -> None:
    assert show_claim(VerifierDocument({"a": None, "b": 0.1})) == '{"a": null, "b": 0.1}'
    assert (show_claim(None), show_verdict(None)) == ("nothing", "nothing")
