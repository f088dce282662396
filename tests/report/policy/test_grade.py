"""The leaderboard grade of one attempt."""

import msgspec
import pytest

from proctor.ledger.row import TrialRow
from proctor.record.comparable import RunConditions, TaskConditions
from proctor.report.policy.document import load_policy
from proctor.report.policy.grade import grade_trial, list_open_findings, load_leaderboard_rule
from proctor.report.policy.reason import PolicyCode
from proctor.trial.finding import FindingCode, Level, level_of

GOOD = TrialRow(
    seq=0, experiment_id="e", trial_id="t", record="0" * 64, status="sealed", task_id="a",
    agent="x", revision="1", model="m", configuration="c",
    run_conditions=RunConditions(backend="docker", profile="harbor-0.13.1"),
    task_conditions=TaskConditions(
        revision="1" * 64, image="debian@sha256:" + "2" * 64, verifier="3" * 12
    ),
    reward=1.0, completeness="complete",
)  # fmt: skip


def test_what_is_on_record_as_a_whole_is_of_leaderboard_grade() -> None:
    assert grade_trial(GOOD) == ()
    assert grade_trial(msgspec.structs.replace(GOOD, reward=None)) == ()


def test_an_attempt_whose_image_was_never_built_is_not_of_the_grade() -> None:
    unbuilt = TaskConditions(revision="1" * 64, image="unresolved", verifier="3" * 12)
    attempt = msgspec.structs.replace(GOOD, task_conditions=unbuilt)
    assert grade_trial(attempt) == (PolicyCode.UNPINNED_IMAGE,)
    unscored = msgspec.structs.replace(attempt, reward=None)
    assert grade_trial(unscored) == (PolicyCode.UNPINNED_IMAGE,)


@pytest.mark.parametrize(
    ("attempt", "task", "run", "code"),
    [
        ({"completeness": "partial"}, {}, {}, PolicyCode.PARTIAL_RECORD),
        ({}, {"revision": "unknown"}, {}, PolicyCode.UNKNOWN_TASK),
        ({}, {"revision": "unresolved"}, {}, PolicyCode.UNKNOWN_TASK),
        ({}, {"image": "debian:12"}, {}, PolicyCode.UNPINNED_IMAGE),
        ({}, {"verifier": None}, {}, PolicyCode.NO_VERIFIER),
        ({}, {}, {"profile": None}, PolicyCode.NO_CERTIFICATE),
        ({"findings": ("base-substituted",)}, {}, {}, PolicyCode.OPEN_FINDING),
    ],
)
def test_one_thing_that_is_missing_is_one_reason(
    attempt: dict[str, object], task: dict[str, object], run: dict[str, object], code: PolicyCode
) -> None:
    assert GOOD.task_conditions
    assert GOOD.run_conditions
    changed = msgspec.structs.replace(
        GOOD,
        **attempt,
        task_conditions=msgspec.structs.replace(GOOD.task_conditions, **task),
        run_conditions=msgspec.structs.replace(GOOD.run_conditions, **run),
    )
    assert grade_trial(changed) == (code,)


def test_a_finding_of_no_weight_or_that_a_review_passed_is_not_open() -> None:
    for changes in ({"findings": ("network-shared",)}, {"findings": ("system-changed",)},
                    {"findings": ("base-substituted",), "review": "pass"}):  # fmt: skip
        assert grade_trial(msgspec.structs.replace(GOOD, **changes)) == ()


OTHER_CONDITIONS = {
    *("base-substituted", "limits-not-enforced", "usr-read-only", "steps-not-replayed"),
    *("models-replayed", "model-replay-differs"),
    *("clock-jumped", "files-refused", "verifier-not-apart", "clean-room-skipped"),
}


@pytest.mark.parametrize("code", FindingCode)
def test_alarms_and_other_conditions_are_not_of_leaderboard_grade(code: FindingCode) -> None:
    is_open = level_of(code) is Level.ALARM or code in OTHER_CONDITIONS
    attempt = msgspec.structs.replace(GOOD, findings=(str(code),))
    assert grade_trial(attempt) == ((PolicyCode.OPEN_FINDING,) if is_open else ())
    for name in ("leaderboard", "terminal-bench-2-1"):
        assert bool(list_open_findings(attempt, load_policy(name).integrity)) == is_open


def test_a_finding_of_a_newer_version_is_not_of_leaderboard_grade() -> None:
    attempt = msgspec.structs.replace(GOOD, findings=("reward-forged-anew",))
    assert grade_trial(attempt) == (PolicyCode.OPEN_FINDING,)


def test_the_grade_and_the_bundled_policies_refuse_the_same_findings() -> None:
    rule = load_leaderboard_rule()
    assert rule.no_open_findings
    assert (
        rule == load_policy("leaderboard").integrity == load_policy("terminal-bench-2-1").integrity
    )


def test_what_was_withheld_says_only_that() -> None:
    gone = msgspec.structs.replace(GOOD, task_conditions=None, run_conditions=None)
    assert grade_trial(gone) == (PolicyCode.WITHHELD_TRIAL,)
