"""Jobs that `proctor run` left, before all the other commands."""

import json
import shutil
from pathlib import Path

from tests.cli.programs import Proctor
from tests.cli.test_resume import trials_of
from tests.cli.test_run import NULL, TASKS, Run, load, make_task, only_job
from tests.cli.test_run import run as run  # a fixture
from tests.exchange.trials import write_record

FLAKY = ("-e", "null", "-a", "nop", "--ek", "reward=nothing", "-r", "1")
"""Every trial fails, and is begun again once."""


def test_an_audit_finds_the_attempts_that_were_kept(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    retried = ("--retry-include", "VerifierOutputParseError")
    exclude = ("--retry-exclude", "NoSuchError")
    assert run("-p", TASKS / "pass-simple", *FLAKY, *retried, *exclude).code == 3
    audit = proctor("audit", only_job(tmp_path))
    assert audit.code == 0, audit.out
    assert "kept-attempts" in audit.out
    assert "1 earlier attempt, in <trial>/attempts, not counted" in audit.out
    assert "gone" not in audit.out


def test_a_record_of_a_kept_attempt_bears_its_number(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    assert run("-p", TASKS / "pass-simple", *NULL).code == 0
    (trial,) = trials_of(job := only_job(tmp_path))
    (trial / "result.json").unlink()
    assert proctor("resume", job).code == 0
    made = tmp_path / "made.json"
    attempt = trial / "attempts" / "1"
    write_record(attempt, made)
    assert load(made)["trial_id"] == load(attempt / "record.json")["trial_id"]
    assert load(made)["environment"]["tool_versions"]


def test_a_job_whose_task_changed_is_scored_and_audited_by_its_last_plan(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    task = make_task(tmp_path / "tasks" / "one")
    assert run("-p", tmp_path / "tasks", *NULL, "-k", "2").code == 0
    (task / "instruction.md").write_text("Do it well.\n")
    job = only_job(tmp_path)
    assert proctor("resume", job).code == 0
    assert len(trials_of(job)) == 4
    audit = proctor("audit", job, "--json")
    assert audit.code == 0, audit.out
    kinds = [note["kind"] for note in json.loads(audit.out)["jobs"][0]["notes"]]
    assert kinds.count("earlier-plan") == 2
    score = proctor("score", job)
    assert score.code == 0, score.err
    assert "trials: 2 planned = 2 run + 0 cannot be read + 0 not run" in score.out


def test_whoever_checks_a_trial_is_told_what_of_it_to_name(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    assert run("-p", TASKS / "pass-simple", *NULL).code == 0
    (trial,) = trials_of(only_job(tmp_path))
    ran = proctor("check", trial)
    assert ran.code == 2
    assert f"{trial}/record.json" in ran.err


def test_whoever_resumes_a_trial_or_a_file_is_told_so(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    assert run("-p", TASKS / "pass-simple", *NULL).code == 0
    (trial,) = trials_of(job := only_job(tmp_path))
    assert f"this is one trial; expected the job directory around it ({job})" in (
        proctor("resume", trial).err
    )
    assert "a file; expected the directory of a job" in proctor("resume", job / "result.json").err


def test_an_exception_that_no_trial_ended_in_is_said(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    assert run("-p", TASKS / "pass-simple", "-e", "null", "-a", "nop", "--ek", "reward=no").code
    job = only_job(tmp_path)
    said = "--also Misspelt: no trial ended in it; others ended in VerifierOutputParseError"
    assert said in proctor("resume", job, "--also", "Misspelt").err
    assert said in proctor("resume", job, "--also", "Misspelt", "--dry-run").out


def test_a_value_that_the_job_did_not_leave_out_is_refused(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    assert run("-p", TASKS / "pass-simple", *NULL).code == 0
    ran = proctor("resume", only_job(tmp_path), "--ae", "KEY=hush-hush")
    assert ran.code == 2
    assert "--ae KEY: " in ran.err
    assert "hush-hush" not in ran.err


def test_a_dry_run_calls_trials_as_they_will_be_called(run: Run, tmp_path: Path) -> None:
    task = make_task(tmp_path / "tasks" / "short", task='name = "org/another"')
    assert run("-p", task, *NULL, "--job-name", "job").code == 0
    shutil.rmtree(trials_of(only_job(tmp_path))[0])
    ran = run("-p", task, *NULL, "--job-name", "job", "--dry-run")
    assert "short__…" in ran.out, ran.err


def test_a_job_without_verification_says_that_it_has_no_scores(run: Run) -> None:
    ran = run("-p", TASKS, *NULL, "--disable-verification")
    assert ran.code == 0
    assert "verification was disabled: no scores" in ran.out


def test_the_line_of_an_unfinished_job_comes_with_a_note(
    run: Run, proctor: Proctor, tmp_path: Path
) -> None:
    assert run("-p", TASKS, *NULL).code == 0
    job = only_job(tmp_path)
    assert "unfinished" not in proctor("outcome", job).err
    result = load(job / "result.json")
    (job / "result.json").write_text(json.dumps(result | {"finished_at": None}))
    shutil.rmtree(trials_of(job)[0])
    assert "that the job is unfinished" in proctor("outcome", job).err
