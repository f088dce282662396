"""`proctor check --policy`: submissions by a policy, in words and as JSON."""

import json
import shutil
from pathlib import Path

import pytest

from proctor.cli import check_policy
from proctor.report.policy.document import load_policy
from proctor.report.policy.reason import Check, PolicyCode
from proctor.report.policy.verdict import CheckOutcome, Failure, Verdict
from tests.audit.directories import COPIED, copy_job, find_trial, set_reward
from tests.cli.programs import Proctor, Ran

JOB = COPIED / "04-binary-scripted-k5"
POLICY = """format = "proctor-policy-1"
name = "small"
[attempts]
minimum = 5
[evidence]
follows = true
planned = true
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(POLICY)
    return path


def test_a_submission_that_passes_is_exit_0(proctor: Proctor, policy: Path) -> None:
    ran = proctor("check", JOB, "--policy", policy)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{JOB}: small: passed (15 trials)\n")
    assert "not checked: that the run happened as its files say" in ran.out
    assert "reviews, ledger: not required by the policy" in ran.out


def test_one_that_fails_is_exit_1_with_a_reason_for_each_trial(proctor: Proctor) -> None:
    ran = proctor("check", JOB, "--policy", "terminal-bench-2-1")
    assert ran.code == 1
    lines = ran.out.splitlines()
    rows = [line.split() for line in lines]
    tasks = next(row for row in rows if row[:1] == ["tasks"])
    assert tasks[:7] == ["tasks", "failed", "105", "foreign-task", "15,", "missing-task", "89,"]
    assert ["limits", "passed"] in rows
    trial = next(JOB.glob("pass-two__*")).name
    at = lines.index(f"{JOB.name}/{trial}")
    assert "foreign-task  ran pass-two, which is not a task of terminal-bench-2-1" in lines[at + 1]


def test_what_most_trials_have_is_said_once_and_the_rest_by_trial(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = ["base-substituted", "base-substituted", "base-substituted, late-reward"]
    failures = tuple(
        Failure(PolicyCode.OPEN_FINDING, f"e/{n}", each) for n, each in enumerate(found)
    )
    outcome = CheckOutcome(Check.FINDINGS, is_asked=True, failures=failures)
    check_policy._print(Verdict(load_policy("leaderboard"), "e", 4, [outcome], {}))
    lines = capsys.readouterr().out.splitlines()
    (once,) = [line for line in lines if "base-substituted" in line]
    assert once.startswith("open-finding  base-substituted in 3 of 4 trials: Ran on ")
    assert [line for line in lines if line.startswith("e/")] == ["e/2"]
    assert lines[lines.index("e/2") + 1] == "  open-finding  late-reward"


def test_json_has_every_reason(proctor: Proctor, policy: Path) -> None:
    ran = proctor("check", JOB, COPIED / "31-killed", "--policy", policy, "--json")
    assert ran.code == 1
    document = json.loads(ran.out)
    assert (document["passed"], document["policy"]) == (False, "small")
    passed, failed = document["submissions"]
    assert (passed["passed"], passed["trials"], passed["failures"]) == (True, 15, [])
    assert {failure["code"] for failure in failed["failures"]} == {"too-few-attempts"}
    checks = {each["check"]: each for each in failed["checks"]}
    assert checks["attempts"]["passed"] is False
    assert checks["ledger"] == {
        "check": "ledger", "asked": False, "passed": None, "failures": 0, "unchecked": [],
    }  # fmt: skip


def test_a_directory_of_jobs_is_one_submission(proctor: Proctor, policy: Path) -> None:
    ran = proctor("check", COPIED, "--policy", policy, "--json")
    assert ran.code == 1
    (document,) = json.loads(ran.out)["submissions"]
    assert document["trials"] > 100


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["absent"], "no ledger at"),
        ([JOB / "lock.json", JOB], "lock.json is a file"),
        ([next(JOB.glob("pass-two__*"))], "this is one trial; expected the job directory"),
        ([JOB, "--key", "x"], "--key requires --ledger"),
        ([JOB, "--since", "x"], "--since requires --ledger"),
        ([JOB, "--ledger", "absent"], "absent: there is no ledger to compare"),
        ([JOB, "--evidence", "x"], "--evidence cannot be used with a policy of jobs"),
        ([COPIED.parent / "tasks" / "binary" / "pass-two"], "a task; --policy requires a job"),
    ],
)
def test_what_is_no_submission_is_exit_2(
    proctor: Proctor, policy: Path, words: list[object], sentence: str
) -> None:
    ran = proctor("check", *words, "--policy", policy)
    assert (ran.code, ran.out) == (2, "")
    assert sentence in ran.err


@pytest.mark.parametrize("option", ["--ledger", "--since"])
def test_a_ledger_requires_a_policy(proctor: Proctor, option: str, tmp_path: Path) -> None:
    ran = proctor("check", JOB / "lock.json", option, tmp_path)
    assert ran.code == 2
    assert f"{option} requires --policy" in ran.err


def test_a_policy_that_is_none_is_exit_2(proctor: Proctor, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(POLICY + "[tasks]\nnamse = []\n")
    ran = proctor("check", JOB, "--policy", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"proctor: {path}: [tasks] has 'namse'; expected one of names")


def test_a_sealed_experiment_and_the_job_it_came_from_pass_alike(
    proctor: Proctor, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    ledger = tmp_path / "ledger"
    assert proctor("import", "harbor", JOB, "--ledger", ledger).code in (0, 3)
    sealed = proctor("check", JOB.name, "--policy", policy, "--ledger", ledger)
    assert sealed.code == 0, sealed.out
    beside = proctor("check", JOB, "--policy", policy, "--ledger", ledger)
    assert beside.code == 0, beside.out
    assert "not checked: ledger: whose ledger it is" in beside.out
    log = next((ledger / "entries").iterdir())
    log.write_bytes(log.read_bytes().replace(b'"reward":0.0', b'"reward":1.0'))
    damaged = proctor("check", JOB, "--policy", policy, "--ledger", ledger)
    assert damaged.code == 1
    assert "damaged-ledger  the submission: edited: " in damaged.out
    assert proctor("check", JOB.name, "--policy", policy, "--ledger", ledger).code == 1


# Nothing to check


ASKS_NOTHING = 'format = "proctor-policy-1"\nname = "nothing"\n'


@pytest.fixture
def asks_nothing(tmp_path: Path) -> Path:
    path = tmp_path / "nothing.toml"
    path.write_text(ASKS_NOTHING)
    return path


def codes(ran: Ran) -> set[str]:
    (submission,) = json.loads(ran.out)["submissions"]
    return {failure["code"] for failure in submission["failures"]}


@pytest.mark.parametrize("left", [["config.json"], ["config.json", "lock.json", "result.json"]])
def test_a_job_without_trials_is_not_passed(
    proctor: Proctor, asks_nothing: Path, tmp_path: Path, left: list[str]
) -> None:
    job = tmp_path / "job"
    job.mkdir()
    for name in left:
        shutil.copy(JOB / name, job)
    ran = proctor("check", job, "--policy", asks_nothing, "--json")
    assert (ran.code, codes(ran)) == (1, {"no-trials"})
    assert proctor("gate", job, "--min-mean", "0").code == 3
    assert proctor("audit", job).code == 1


def test_one_job_without_trials_fails_the_directory_of_jobs(
    proctor: Proctor, asks_nothing: Path, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs"
    shutil.copytree(COPIED / "01-binary-oracle-k1", jobs / "full")
    (jobs / "bare").mkdir()
    shutil.copy(JOB / "config.json", jobs / "bare")
    ran = proctor("check", jobs, "--policy", asks_nothing)
    assert ran.code == 1
    assert f"no-trials  the submission: {jobs / 'bare'}: a job without trials" in ran.out


@pytest.mark.parametrize(
    "name", [".", "./", "../04-binary-scripted-k5/", "../04-binary-scripted-k5"]
)
def test_a_job_is_the_same_by_any_name(
    proctor: Proctor, policy: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(JOB)
    ran = proctor("check", name, "--policy", policy, "--json")
    (submission,) = json.loads(ran.out)["submissions"]
    assert (ran.code, submission["trials"]) == (0, 15)
    assert proctor("gate", name, "--max-cost-usd", "0.03").code == 0
    assert proctor("audit", name).code == 0


def test_findings_of_a_job_named_by_a_dot_are_those_of_its_trials(
    proctor: Proctor, policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = copy_job("04-binary-scripted-k5", tmp_path)
    trial = find_trial(job, "pass-two")
    set_reward(trial, 0.5)
    monkeypatch.chdir(job)
    (submission,) = json.loads(proctor("check", ".", "--policy", policy, "--json").out)[
        "submissions"
    ]
    assert {each.get("trial") for each in submission["failures"]} >= {f"{job.name}/{trial.name}"}
