"""The whole audit of one job."""

from pathlib import Path

import pytest

from proctor.audit.findings import Kind
from proctor.audit.job import audit_job
from proctor.errors import JobError
from proctor.harbor.job import load_job
from proctor.reward.profile import DEFAULT_PROFILE, HARBOR_0_25, Profile
from tests.audit.directories import COPIED, copy_job, edit_json, make_job


def test_notes_leave_the_numbers_standing() -> None:
    audit = audit_job(str(COPIED / "31-killed-before-resume"))
    assert audit.follows
    assert [finding.kind for finding in audit.notes] == [
        Kind.UNFINISHED_JOB,
        Kind.UNFINISHED_TRIAL,
        Kind.UNFINISHED_TRIAL,
    ]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("20-flaky-retry3", Kind.LOST_ATTEMPTS),
        ("31-killed", Kind.RESUMED_ORDER),
        ("30-cancelled-before-resume", Kind.UNFINISHED_JOB),
    ],
)
def test_what_cannot_be_known_is_noted(name: str, kind: Kind) -> None:
    assert kind in {finding.kind for finding in audit_job(str(COPIED / name)).notes}


def test_a_job_that_lost_its_result_is_audited_all_the_same(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    (job / "result.json").unlink()
    audit = audit_job(str(job))
    assert [finding.kind for finding in audit.differences] == [Kind.MISSING_RESULT]


@pytest.mark.parametrize(
    ("version", "profile"),
    [
        ("0.13.1", DEFAULT_PROFILE),
        ("0.22.9", DEFAULT_PROFILE),
        ("0.23.0", HARBOR_0_25),
        ("1.0", HARBOR_0_25),
        ("unknown", DEFAULT_PROFILE),
        ("0.x", DEFAULT_PROFILE),
        ("9" * 5000 + ".1", DEFAULT_PROFILE),
        (None, DEFAULT_PROFILE),
    ],
)
def test_the_rules_are_those_of_the_harbor_that_ran_it(
    tmp_path: Path, version: str | None, profile: Profile
) -> None:
    job = copy_job("12-nan-oracle", tmp_path)
    edit_json(job / "lock.json", lambda lock: lock["harbor"].update(version=version))
    assert load_job(str(job)).profile is profile
    audit = audit_job(str(job))
    assert audit.profile is profile
    assert audit.follows is (profile is DEFAULT_PROFILE)


def test_a_job_without_plan_is_audited_by_the_default_rules(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    assert load_job(str(job)).profile is DEFAULT_PROFILE


def test_the_rules_can_be_told() -> None:
    audit = audit_job(str(COPIED / "12-nan-oracle"), HARBOR_0_25)
    assert not audit.follows
    assert audit_job(str(COPIED / "01-binary-oracle-k1"), HARBOR_0_25).follows


def test_what_is_no_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="empty directory; expected a Harbor job directory"):
        audit_job(str(tmp_path))
