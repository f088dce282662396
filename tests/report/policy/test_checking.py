"""What a policy finds in real jobs of harbor, honest and doctored, and in a ledger of them."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from proctor.errors import LedgerError
from proctor.exchange.harbor_job import JobOptions, find_trials
from proctor.exchange.intake import seal_offers
from proctor.ledger.api import Ledger
from proctor.report.policy.checking import check_submission
from proctor.report.policy.document import parse_policy
from proctor.report.policy.from_jobs import load_jobs_submission
from proctor.report.policy.from_ledger import opened_experiment, verify_sealed
from proctor.report.policy.reason import Check, PolicyCode
from proctor.report.policy.verdict import Verdict
from tests.audit.directories import COPIED, copy_job, edit_config, edit_json, write_json
from tests.audit.directories import find_trial as trial_of

HEAD = 'format = "proctor-policy-1"\nname = "p"\n'
EVERYTHING = """
[tasks]
names = ["oracle-wrong", "pass-simple", "pass-two"]
same_revision = true
[attempts]
exact = 5
[agent]
one_model = true
one_configuration = true
[limits]
default = true
[traces]
needed = "all"
[evidence]
follows = true
planned = true
[replacements]
causes = ["infrastructure"]
[integrity]
no_open_findings = true
"""
SCRIPTED = "04-binary-scripted-k5"


def check(text: str, job: Path) -> Verdict:
    return check_submission(
        parse_policy((HEAD + text).encode(), "p"), load_jobs_submission(str(job))
    )


def test_an_honest_job_of_harbors_passes_all_that_it_can() -> None:
    verdict = check(EVERYTHING, COPIED / SCRIPTED)
    assert verdict.is_passed, verdict.failures
    assert verdict.n_trials == 15
    asked = [outcome.check for outcome in verdict.outcomes if outcome.is_asked]
    assert Check.TRACES in asked
    assert Check.LEDGER not in asked


def test_records_that_harbor_leaves_are_not_of_leaderboard_grade() -> None:
    verdict = check("[records]\ncomplete = true\nverifier = true", COPIED / SCRIPTED)
    assert verdict.codes == {PolicyCode.PARTIAL_RECORD, PolicyCode.NO_VERIFIER}
    assert len(verdict.by_trial()) == 15


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('[tasks]\nnames = ["pass-two", "other"]', {"foreign-task", "missing-task"}),
        ("[tasks]\ncount = 4", {"wrong-task-count"}),
        (f'[tasks.digests]\npass-two = "{"0" * 64}"', {"foreign-task", "changed-task"}),
        (f'[tasks.digests]\npass-two = "sha256:{"0" * 64}"', {"foreign-task", "changed-task"}),
        ("[attempts]\nminimum = 6", {"too-few-attempts"}),
        ("[attempts]\nexact = 4", {"too-many-attempts"}),
        ("[images]\npinned = true", {"unpinned-image"}),
        ("[reviews]\nshare = 0.1", {"too-few-reviews"}),
        ("[ledger]\nverified = true", {"no-ledger"}),
    ],
)
def test_a_job_that_is_not_what_is_asked_for(text: str, codes: set[str]) -> None:
    assert check(text, COPIED / SCRIPTED).codes == codes


@pytest.mark.parametrize(
    ("job", "text", "codes"),
    [
        ("14-two-models", "[agent]\none_model = true", {"mixed-model"}),
        ("42-config-multi", "[agent]\none_configuration = true", {"mixed-agent"}),
        ("03-binary-oracle-k5", "[agent]\none_model = true", {"unknown-model"}),
        ("03-binary-oracle-k5", '[traces]\nneeded = "rewarded"', {"no-trace"}),
        ("17-agent-hang", "[limits]\ndefault = true", {"changed-limits"}),
        ("20-flaky-retry3", '[replacements]\ncauses = ["infrastructure"]', {"lost-attempts"}),
        ("31-killed-before-resume", "[evidence]\nplanned = true", {"unfinished-job", "no-record"}),
        ("51-tamper-mounted-true", "[evidence]\nfollows = true", set()),
    ],
)
def test_real_jobs_have_their_reasons(job: str, text: str, codes: set[str]) -> None:
    assert check(text, COPIED / job).codes == codes


def test_a_trace_that_names_another_model_contradicts_the_claim(tmp_path: Path) -> None:
    job = copy_job(SCRIPTED, tmp_path)
    trial = trial_of(job, "pass-two")
    edit_json(
        trial / "agent" / "trajectory.json",
        lambda trace: [step.update(model_name="acme/model-z") for step in trace["steps"]],
    )
    verdict = check("[agent]\none_model = true", job)
    assert verdict.codes == {PolicyCode.CONTRADICTED_MODEL, PolicyCode.MIXED_MODEL}
    assert list(verdict.by_trial()) == [f"{SCRIPTED}/{trial.name}"]


def test_whoever_deletes_the_plan_does_not_delete_the_check(tmp_path: Path) -> None:
    job = copy_job(SCRIPTED, tmp_path)
    (job / "lock.json").unlink()
    assert check("[evidence]\nplanned = true", job).codes == {PolicyCode.NO_PLAN}
    locked = f'[tasks.digests]\npass-two = "sha256:{"0" * 64}"'
    assert PolicyCode.UNKNOWN_TASK in check(locked, job).codes


def test_an_override_in_one_trial_is_that_trials(tmp_path: Path) -> None:
    job = copy_job(SCRIPTED, tmp_path)
    trial = trial_of(job, "pass-two")
    edit_config(trial, lambda config: config["environment"].update(override_cpus=8))
    (failure,) = check("[limits]\ndefault = true", job).failures
    assert failure.subject == f"{SCRIPTED}/{trial.name}"
    assert failure.message == "environment.override_cpus = 8.0"


def test_a_finding_is_open_unless_it_is_tolerated(tmp_path: Path) -> None:
    job = copy_job(SCRIPTED, tmp_path)
    trial = trial_of(job, "pass-two")
    finding = {"code": "reward-planted", "phase": "verify", "message": "m"}
    write_json(trial / "findings.json", [finding])
    asked = "[integrity]\nno_open_findings = true\n"
    (failure,) = check(asked, job).failures
    assert (failure.code, failure.message) == (PolicyCode.OPEN_FINDING, "reward-planted")
    assert failure.subject == f"{SCRIPTED}/{trial.name}"
    assert check(asked + 'tolerated = ["reward-planted"]', job).is_passed


@pytest.mark.parametrize(
    ("rule", "failing"),
    [
        ("", "reward-planted, system-changed"),
        ('level = "notice"', "reward-planted, system-changed"),
        ('level = "alarm"', "reward-planted"),
        ('level = "info"', "output-cut, reward-planted, system-changed"),
        ('level = "alarm"\nrefused = ["output-cut"]', "output-cut, reward-planted"),
        ('level = "info"\ntolerated = ["output-cut", "reward-planted"]', "system-changed"),
    ],
)
def test_the_level_of_a_finding_and_its_code_decide(
    tmp_path: Path, rule: str, failing: str
) -> None:
    job = copy_job(SCRIPTED, tmp_path)
    codes = ("output-cut", "reward-planted", "system-changed")
    findings = [{"code": code, "phase": "verify", "message": "m"} for code in codes]
    write_json(trial_of(job, "pass-two") / "findings.json", findings)
    (failure,) = check(f"[integrity]\nno_open_findings = true\n{rule}", job).failures
    assert failure.message == failing


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in (SCRIPTED, "06-errors-oracle-k1"):
        found = find_trials(COPIED / name, JobOptions())
        seal_offers(found.offers, partial(Ledger.open_or_create, tmp_path / "ledger"))
    with Ledger.open(tmp_path / "ledger") as made:
        yield made


def check_sealed(ledger: Ledger, text: str, experiment: str = SCRIPTED) -> Verdict:
    sealed = verify_sealed(Path(ledger.where))
    with opened_experiment(ledger, experiment, sealed) as submission:
        return check_submission(parse_policy((HEAD + text).encode(), "p"), submission)


def test_a_job_in_a_ledger_passes_as_it_does_in_its_directory(ledger: Ledger) -> None:
    verdict = check_sealed(ledger, EVERYTHING + "[ledger]\nverified = true")
    assert verdict.is_passed, verdict.failures
    assert all(outcome.is_checked for outcome in verdict.outcomes)


def test_reviews_count_by_their_latest(ledger: Ledger) -> None:
    asked = "[reviews]\nshare = 0.05\nnone_failed = true"
    assert check_sealed(ledger, asked).codes == {PolicyCode.TOO_FEW_REVIEWS}
    first = ledger.trials()[0]
    ledger.review(first, "fail", reviewer="ann")
    assert check_sealed(ledger, asked).codes == {PolicyCode.FAILED_REVIEW}
    ledger.review(first, "pass", reviewer="ben")
    assert check_sealed(ledger, asked).is_passed


def test_replacements_count_by_their_cause(ledger: Ledger) -> None:
    asked = '[replacements]\ncauses = ["infrastructure"]'
    task = ledger.trials()[0].task_id
    first, second, third, *_ = [row for row in ledger.trials() if row.task_id == task]
    ledger.supersede(first, second, "infrastructure", reason="the disk was full", author="ann")
    assert check_sealed(ledger, asked).is_passed
    ledger.supersede(third, second, "agent", reason="it was unlucky", author="ann")
    (failure,) = check_sealed(ledger, asked).failures
    assert failure.code is PolicyCode.REPLACED_TRIAL
    assert failure.subject == f"{SCRIPTED}/{third.trial_id}"
    assert "it was unlucky (cause: agent)" in failure.message


def test_a_withheld_trial_fails_the_records(ledger: Ledger) -> None:
    first = ledger.trials()[0]
    ledger.withhold(first, reason="a key was in it", author="ann")
    (failure,) = check_sealed(ledger, "[ledger]\nverified = true").failures
    assert failure.code is PolicyCode.WITHHELD_TRIAL


def test_an_experiment_that_is_not_there_is_told(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no trial of the experiment 'absent'"):
        check_sealed(ledger, "", "absent")
