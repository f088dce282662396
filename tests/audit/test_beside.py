"""What lies beside a job's numbers is noted, and changes none of them."""

from pathlib import Path

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import audit_job
from proctor.audit.scoring import score_jobs
from proctor.harbor.job import load_job
from proctor.reward.profile import DEFAULT_PROFILE
from tests.audit.directories import edit_json, find_trial, make_job, make_trial, write_json

FAILED = {"verifier_result": None, "exception_info": {"exception_type": "RuntimeError"}}
STOPPED = {"verifier_result": None, "exception_info": {"exception_type": "CancelledError"}}


def notes_of(job: Path) -> list[Finding]:
    """The notes of a job whose numbers follow."""
    audit = audit_job(str(job))
    assert audit.follows, audit.differences
    return [note for note in audit.notes if note.kind is not Kind.NO_PLAN]


def count_retries(job: Path, n_retries: int) -> None:
    edit_json(job / "result.json", lambda result: result["stats"].update(n_retries=n_retries))


def test_retried_attempts_that_were_kept_are_not_called_gone(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    count_retries(job, 2)
    for number in ("1", "2"):
        make_trial(find_trial(job, "a") / "attempts" / number, "a", "0", **FAILED)
    (note,) = notes_of(job)
    assert note.kind is Kind.KEPT_ATTEMPTS
    assert note.message == "2 earlier attempts, in <trial>/attempts, not counted"


def test_of_the_retried_attempts_only_the_missing_ones_are_called_gone(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    count_retries(job, 3)
    kept = find_trial(job, "a") / "attempts"
    make_trial(kept / "1", "a", "0", **FAILED)
    make_trial(kept / "2", "a", "0", **STOPPED)
    lost, other = notes_of(job)
    assert lost.message == "retried attempts that are gone: 2; harbor keeps only the last"
    assert other.kind is Kind.KEPT_ATTEMPTS


def test_a_trial_of_an_earlier_plan_is_in_no_number_and_says_what_it_scored(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1", "0"]})
    write_json(job / "proctor.json", {"unplanned": [{"trial": "a__old"}, {"trial": "a__torn"}]})
    make_trial(job / "a__old", "a", "0.25", task_checksum="another")
    (job / "a__torn").mkdir()
    (job / "a__torn" / "result.json").write_text("{")
    old, torn = notes_of(job)
    assert (old.kind, torn.kind) == (Kind.EARLIER_PLAN, Kind.EARLIER_PLAN)
    assert old.message.endswith('not counted; it scored {"reward":0.25}')
    assert torn.message.endswith("it has no readable result")
    scoring = score_jobs([load_job(str(job))], DEFAULT_PROFILE)
    assert scoring.denominators.run == 2
    assert "job: 2 trials of earlier plans: kept, not counted" in scoring.notes


def test_a_trial_that_no_file_sets_aside_still_fails_the_audit(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    make_trial(job / "a__more", "a", "0")
    kinds = {finding.kind for finding in audit_job(str(job)).differences}
    assert Kind.DIRECTORY_WITHOUT_TRIAL in kinds


def test_refused_tasks_are_named(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    write_json(job / "proctor.json", {"refused": ["tasks/b"]})
    (note,) = notes_of(job)
    assert note.message.startswith("tasks/b: could not be run when the job was planned")
    assert (
        "job: 1 task refused, not counted"
        in score_jobs([load_job(str(job))], DEFAULT_PROFILE).notes
    )


def test_findings_of_trials_are_counted_by_kind(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"], "b": ["1"], "c": ["1"]})
    planted = {"code": "reward-planted", "phase": "verify", "message": "", "detail": {}}
    write_json(find_trial(job, "a") / "findings.json", [planted, planted])
    write_json(find_trial(job, "b") / "findings.json", [planted])
    (find_trial(job, "c") / "findings.json").write_text("[{")
    notes = notes_of(job)
    assert {note.kind for note in notes} == {Kind.INTEGRITY_FINDING}
    assert [(note.found, note.message) for note in notes] == [
        ("reward-planted", "reward-planted in 2 trials"),
        ("unreadable", "unreadable in 1 trial"),
    ]


def test_a_torn_proctor_json_is_a_difference(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    (job / "proctor.json").write_text("{")
    (torn,) = audit_job(str(job)).differences
    assert torn.kind is Kind.TORN_FILE
