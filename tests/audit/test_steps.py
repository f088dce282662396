"""Step reward files against what the steps claim, and the steps against their trial."""

from pathlib import Path

import pytest

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import audit_job
from proctor.audit.scoring import score_jobs
from proctor.audit.trials import audit_trials
from proctor.harbor.job import load_job
from proctor.reward.profile import DEFAULT_PROFILE
from tests.audit.directories import Document, edit_config, edit_json, make_job, make_trial, publish

VERIFIED = {"started_at": None, "finished_at": None}
OURS = "1 validation error for VerifierResult"


def audit(trial: Path) -> list[Finding]:
    return list(audit_trials(load_job(str(trial.parent)), DEFAULT_PROFILE))


def kinds(trial: Path) -> list[Kind]:
    return [finding.kind for finding in audit(trial)]


def error(kind: str, message: str = "") -> Document:
    return {"exception_type": kind, "exception_message": message}


def step(name: str, reward: float | None, failed: Document = None, **fields: Document) -> Document:
    claim = None if reward is None else {"rewards": {"reward": reward}}
    return {"step_name": name, "verifier_result": claim, "exception_info": failed, **fields}


def set_steps(trial: Path, *steps: Document, total: float | None = None) -> None:
    """Change the steps of a trial, and what it claims for them."""
    changes: Document = {"step_results": list(steps)}
    if total is not None:
        changes["verifier_result"] = {"rewards": {"reward": total}}
    edit_json(trial / "result.json", lambda found: found.update(changes))


def write_reward(trial: Path, name: str, text: str) -> None:
    (trial / "steps" / name / "verifier").mkdir(parents=True, exist_ok=True)
    (trial / "steps" / name / "verifier" / "reward.txt").write_text(text)


@pytest.fixture
def stepped(tmp_path: Path) -> Path:
    """A trial of two steps, of which the second was not verified."""
    trial = tmp_path / "job" / "a__1"
    steps = [step("one", 1.0), step("two", None, error("AgentTimeoutError"))]
    make_trial(trial, "a", "1", step_results=steps)
    write_reward(trial, "one", "1")
    (trial / "steps" / "two" / "verifier").mkdir(parents=True)
    return trial


def test_an_honest_multi_step_trial_passes(stepped: Path) -> None:
    assert audit(stepped) == []


def test_a_reward_file_of_a_failed_step_is_a_note(stepped: Path) -> None:
    write_reward(stepped, "two", "0")
    (finding,) = audit(stepped)
    assert finding.kind is Kind.UNUSED_REWARD_FILE
    assert "AgentTimeoutError" in finding.message


def test_a_step_claimed_without_verification_is_found(stepped: Path) -> None:
    edit_config(stepped, lambda config: config.update(verifier={"disable": True}))
    assert kinds(stepped) == [Kind.EDITED_STEP_REWARD, Kind.UNUSED_REWARD_FILE]


def test_a_trial_that_broke_off_between_steps_has_no_rewards(stepped: Path) -> None:
    broken = {"verifier_result": None, "exception_info": error("RuntimeError")}
    edit_json(stepped / "result.json", lambda found: found.update(broken))
    (stepped / "exception.txt").write_text("RuntimeError: gone")
    assert audit(stepped) == []


# The course of a trial


def test_a_step_that_was_run_and_is_not_listed_is_found(stepped: Path) -> None:
    write_reward(stepped, "three", "0")
    (finding,) = audit(stepped)
    assert finding == Finding(
        Kind.EDITED_STEP_TOTAL,
        f"{stepped}/result.json",
        "steps/three was run, and the trial result has no such step",
        "no such step",
        "three",
    )


def test_a_file_or_a_link_among_the_steps_is_no_step(stepped: Path) -> None:
    (stepped / "steps" / "notes.txt").write_text("")
    (stepped / "steps" / "latest").symlink_to("one")
    assert audit(stepped) == []


def test_a_step_that_left_no_directory_is_no_finding(stepped: Path) -> None:
    set_steps(stepped, step("one", 1.0), step("setup", None, error("RuntimeError")))
    (stepped / "steps" / "two" / "verifier").rmdir()
    (stepped / "steps" / "two").rmdir()
    assert audit(stepped) == []


def test_a_trial_whose_steps_directory_is_gone_lacks_their_files(stepped: Path) -> None:
    (stepped / "steps").rename(stepped / "elsewhere")
    assert kinds(stepped) == [Kind.MISSING_REWARD_FILE, Kind.EDITED_STEP_TOTAL]


def test_a_step_with_a_slash_in_its_name_has_the_directory_before_it(stepped: Path) -> None:
    write_reward(stepped, "part/three", "1")
    set_steps(stepped, step("one", 1.0), step("two", 1.0), step("part/three", 1.0))
    write_reward(stepped, "two", "1")
    assert audit(stepped) == []


def test_a_step_that_failed_unverified_must_be_the_last(stepped: Path) -> None:
    timed_out = step("two", None, error("AgentTimeoutError"))
    set_steps(stepped, step("one", 1.0), timed_out, step("three", 1.0))
    write_reward(stepped, "three", "1")
    (finding,) = audit(stepped)
    assert (finding.kind, finding.found) == (Kind.EDITED_STEP_TOTAL, "two")
    assert finding.message == "step two failed unverified, and steps follow it"


def test_a_step_that_failed_and_was_verified_may_be_followed(stepped: Path) -> None:
    write_reward(stepped, "two", "1")
    set_steps(stepped, step("two", 1.0, error("AgentTimeoutError")), step("one", 1.0))
    assert audit(stepped) == []


def test_a_trial_without_steps_has_no_directories_of_any(stepped: Path) -> None:
    edit_json(stepped / "result.json", lambda found: found.update(step_results=None))
    assert [finding.expected for finding in audit(stepped)] == ["one", "two"]


def test_a_step_has_rewards_or_an_exception(stepped: Path) -> None:
    set_steps(stepped, step("one", 1.0), step("two", None))
    (finding,) = audit(stepped)
    assert (finding.kind, finding.expected) == (Kind.EDITED_EXCEPTION, "RewardFileNotFoundError")
    (stepped / "steps" / "two" / "verifier" / "reward.txt").mkdir()
    (finding,) = audit(stepped)
    assert finding.expected == "IsADirectoryError"


# Steps of one name


@pytest.fixture
def repeated(tmp_path: Path) -> Path:
    """A job of one trial, whose two steps share a name and so a directory."""
    job = make_job(tmp_path / "job", {"a": ["1"]})
    trial = job / "a__job1"
    set_steps(trial, step("one", 1.0), step("one", 0.0), total=0.5)
    write_reward(trial, "one", "0")
    publish(job)
    return trial


def test_steps_of_one_name_count_as_they_claim(repeated: Path) -> None:
    scoring = score_jobs([load_job(str(repeated.parent))], DEFAULT_PROFILE)
    assert scoring.stats.evals["oracle__adhoc"].metrics == [{"mean": 0.5}]
    assert audit_job(str(repeated.parent)).differences == []


def test_a_total_of_steps_of_one_name_must_follow_from_their_claims(repeated: Path) -> None:
    set_steps(repeated, step("one", 1.0), step("one", 0.0), total=1.0)
    noted = [Kind.NO_REWARD_FILES] * 2
    assert kinds(repeated) == [*noted, Kind.EDITED_STEP_TOTAL]


def test_errors_of_steps_of_one_name_are_not_checked_against_the_files_left(
    repeated: Path,
) -> None:
    failed = step("one", None, error("VerifierOutputParseError"), verifier=VERIFIED)
    set_steps(repeated, step("one", 1.0), failed, total=1.0)
    assert not any(finding.kind.is_difference for finding in audit(repeated))


def test_a_custom_verifier_of_steps_that_leaves_no_file_cannot_be_shown(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    trial = job / "a__job1"
    edit_config(trial, lambda config: config.update(verifier={"import_path": "mine:Verifier"}))
    set_steps(trial, step("one", 1.0), step("two", 1.0), total=1.0)
    publish(job)
    assert kinds(trial) == [Kind.NO_REWARD_FILES] * 2


# Errors of reward files


@pytest.mark.parametrize(
    "failed",
    [
        error("RewardFileNotFoundError"),
        error("RewardFileEmptyError"),
        error("VerifierOutputParseError"),
        error("ValidationError", OURS),
    ],
    ids=lambda found: found["exception_type"],
)
def test_an_error_of_a_step_must_fit_its_files(stepped: Path, failed: Document) -> None:
    set_steps(stepped, step("one", 1.0), step("two", None, failed, verifier=VERIFIED))
    write_reward(stepped, "two", "0")
    (finding,) = audit(stepped)
    assert (finding.kind, finding.found) == (Kind.EDITED_EXCEPTION, failed["exception_type"])
    assert finding.expected == 'rewards {"reward":0.0}'


def test_an_error_that_the_files_of_a_step_give_is_no_finding(stepped: Path) -> None:
    refused = error("ValidationError", OURS)
    set_steps(stepped, step("one", 1.0), step("two", None, refused, verifier=VERIFIED))
    (stepped / "steps" / "two" / "verifier" / "reward.json").write_text('{"reward": "much"}')
    assert audit(stepped) == []


def test_a_validation_error_of_an_agent_is_only_what_left_a_file_unused(stepped: Path) -> None:
    refused = error("ValidationError", "1 validation error for ToolCall")
    set_steps(stepped, step("one", 1.0), step("two", None, refused, verifier=VERIFIED))
    assert audit(stepped) == []
    write_reward(stepped, "two", "0")
    assert kinds(stepped) == [Kind.UNUSED_REWARD_FILE]


def test_an_error_of_a_step_that_was_never_verified_is_not_checked(stepped: Path) -> None:
    failed = step("two", None, error("RewardFileEmptyError"), verifier=None)
    set_steps(stepped, step("one", 1.0), failed)
    assert audit(stepped) == []


def test_an_error_of_a_custom_verifier_is_not_checked(stepped: Path) -> None:
    edit_config(stepped, lambda config: config.update(verifier={"import_path": "own:Verifier"}))
    failed = step("two", None, error("RewardFileEmptyError"), verifier=VERIFIED)
    set_steps(stepped, step("one", 1.0), failed)
    assert audit(stepped) == []
