"""`proctor import harbor` and the way back: real jobs, half-copied ones, running ones, own ones."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from proctor.harbor.job import load_job
from proctor.ledger.entry import TrialEntry
from proctor.ledger.ledger import OpenLedger
from tests.audit.directories import COPIED, copy_job, edit_json, find_trial
from tests.cli.programs import Proctor, Ran
from tests.cli.test_resume import trials_of
from tests.cli.test_run import NULL, TASKS, Run, only_job
from tests.cli.test_run import run as run  # a fixture

SCRIPTED = "04-binary-scripted-k5"
KILLED = "31-killed-before-resume"


def facts_of(ran: Ran) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(ran.out)
    return facts


def counts_of(ran: Ran) -> tuple[int, int, int, int, int]:
    """Found, imported, already there, refused, left for later; they add up."""
    facts = facts_of(ran)
    kinds = ("imported", "already_there", "refused", "left_for_later")
    new, known, refused, later = [len(facts[kind]) for kind in kinds]
    assert facts["found"] == new + known + refused + later
    return facts["found"], new, known, refused, later


def files_below(root: Path) -> dict[str, bytes]:
    """Every plain file, by its path."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def entries_of(ledger: Path) -> list[TrialEntry]:
    with OpenLedger.open(ledger) as opened:
        size = opened.refresh().tree.size
        found = [opened.entry(seq) for seq in range(size)]
    return [entry for entry in found if isinstance(entry, TrialEntry)]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Where the ledger will be."""
    return tmp_path / "ledger"


def test_every_real_job_comes_in_once_and_goes_back_byte_for_byte(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    trials = sum(path.is_dir() for path in COPIED.glob("*/*"))
    words = ("import", "harbor", COPIED, "--killed", "--ledger", ledger, "--json")
    ran = proctor(*words)
    assert ran.code == 0, ran.err
    assert counts_of(ran) == (trials, trials, 0, 0, 0)
    assert counts_of(proctor(*words)) == (trials, 0, trials, 0, 0)
    experiments = {each["experiment_id"] for each in facts_of(ran)["imported"]}
    assert experiments == {path.name for path in COPIED.iterdir()}
    out = tmp_path / "out"
    written = proctor("export", "--format", "harbor", "-o", out, "--ledger", ledger)
    assert (written.code, written.out) == (0, f"{out}: {trials} trials of 21 jobs\n")
    assert files_below(out) == files_below(COPIED)
    assert proctor("ledger", "verify", "--ledger", ledger).code == 0
    # Once more over the same files changes nothing and is no error; over others it is.
    again = ("export", "--format", "harbor", "-o", out, "--ledger", ledger)
    assert proctor(*again).code == 0
    next(out.glob("*/result.json")).write_text("other")
    refused = proctor(*again)
    assert refused.code == 2
    assert "exists with other content" in refused.err


def test_trials_are_sealed_in_the_order_that_harbor_adds_them_up(
    proctor: Proctor, ledger: Path
) -> None:
    job = COPIED / "29-passk-20"
    assert proctor("import", "harbor", job, "--ledger", ledger).code == 0
    names = [entry.source.name for entry in entries_of(ledger) if entry.source]
    assert names == [f"{job.name}/{found.trial.name}" for found in load_job(str(job)).trials]
    assert [entry.source.seq for entry in entries_of(ledger) if entry.source] == list(range(40))


def test_a_job_is_audited_as_it_comes_in(proctor: Proctor, ledger: Path, tmp_path: Path) -> None:
    ran = proctor("import", "harbor", COPIED / SCRIPTED, "--ledger", ledger)
    counts, *_ = ran.out.splitlines()
    assert counts.endswith(" refused; audited: the published numbers follow")
    job = copy_job(SCRIPTED, tmp_path / "doctored")
    (find_trial(job, "oracle-wrong") / "verifier" / "reward.txt").write_text("0.25")
    words = ("import", "harbor", job, "--experiment", "doctored", "--ledger", ledger)
    ran = proctor(*words)
    counts, cause, *_ = ran.out.splitlines()
    assert (ran.code, counts.rpartition("; ")[2]) == (0, "audited: 4 differences")
    assert cause.startswith(f"edited-reward: {find_trial(job, 'oracle-wrong')}/result.json: the ")
    assert cause.endswith(f"; `proctor audit {job}` shows all")
    (audit,) = json.loads(proctor(*words, "--json").out)["audits"]
    assert (audit["verdict"], audit["differences"], len(audit["causes"])) == ("differs", 4, 1)
    many = proctor("import", "harbor", job, COPIED / SCRIPTED, "--ledger", ledger)
    assert "audited: the published numbers of 1 of 2 jobs follow\n" in many.out


def test_cached_tokens_are_counted_once(proctor: Proctor, ledger: Path) -> None:
    job = COPIED / SCRIPTED
    proctor("import", "harbor", job, "--ledger", ledger)
    result = json.loads((find_trial(job, "pass-two") / "result.json").read_text())
    reported = result["agent_result"]
    records = [json.loads(bytes(entry.record)) for entry in entries_of(ledger)]
    costs = {record["trial_id"]: record["cost"] for record in records}
    cost = costs[result["trial_name"]]
    assert cost["tokens_in"] == reported["n_input_tokens"]
    assert cost["cache_read_tokens"] == reported["n_cache_tokens"] > 0


def test_a_running_job_comes_in_as_far_as_it_is_and_the_rest_later(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    job = copy_job(SCRIPTED, tmp_path)
    whole = files_below(job)
    running = sorted(path for path in job.iterdir() if path.is_dir())[:2]
    for trial in running:
        (trial / "result.json").unlink()
    edit_json(job / "result.json", lambda result: result.update(finished_at=None))
    words = ("import", "harbor", job, "--ledger", ledger)
    ran = proctor(*words)
    assert ran.code == 3
    assert "15 trials found: 13 imported, 0 already there, 0 refused, 2 left for later" in ran.out
    assert f"{running[0]}: has no result.json, and the job is not marked" in ran.out
    assert "note: " in ran.out
    assert f"next: proctor trace summary {SCRIPTED}" in ran.out
    for name, data in whole.items():
        (job / name).write_bytes(data)
    ran = proctor(*words, "--json")
    assert ran.code == 0
    assert counts_of(ran) == (15, 2, 13, 0, 0)
    proctor("export", "--format", "harbor", "-o", tmp_path / "out", "--ledger", ledger)
    assert files_below(tmp_path / "out" / SCRIPTED) == whole


def test_killed_trials_are_partial_and_say_so(proctor: Proctor, ledger: Path) -> None:
    ran = proctor("import", "harbor", COPIED / KILLED, "--killed", "--ledger", ledger)
    assert ran.code == 0
    killed = [each for each in entries_of(ledger) if each.reason_code]
    assert [each.reason_code for each in killed] == ["harbor_trial_result_missing"] * 2
    record = json.loads(bytes(killed[0].record))
    assert record["completeness"] == "partial"
    assert record["evaluation"]["reward"] is None
    assert "killed before it wrote a result" in record["outputs"]["agent_output"]["error_message"]


def test_a_killed_trial_of_which_nothing_says_when_it_ran_is_refused(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    job = copy_job(KILLED, tmp_path)
    (job / "lock.json").unlink()
    ran = proctor("import", "harbor", job, "--killed", "--ledger", ledger, "--json")
    assert ran.code == 3
    assert counts_of(ran) == (4, 2, 0, 2, 0)
    assert "its time is not recorded" in facts_of(ran)["refused"][0]["message"]


def test_of_a_half_copied_job_the_whole_trials_come_in(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    job = copy_job(SCRIPTED, tmp_path)
    torn = find_trial(job, "pass-two") / "result.json"
    torn.write_bytes(torn.read_bytes()[:500])
    ran = proctor("import", "harbor", job, "--ledger", ledger, "--json")
    assert ran.code == 3
    assert counts_of(ran) == (15, 14, 0, 1, 0)
    assert "result.json: torn or not JSON" in facts_of(ran)["refused"][0]["message"]
    (job / "lock.json").write_text("{")
    ran = proctor("import", "harbor", job, "--ledger", ledger)
    assert ran.code == 2
    assert "lock.json" in ran.err
    assert "copy the job again" in ran.err


def test_of_several_jobs_one_that_cannot_be_read_does_not_stop_the_others(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    (tmp_path / "jobs").mkdir()
    copy_job("01-binary-oracle-k1", tmp_path / "jobs")
    torn = copy_job("02-binary-nop-k1", tmp_path / "jobs")
    (torn / "lock.json").write_text("{")
    ran = proctor("import", "harbor", tmp_path / "jobs", "--ledger", ledger)
    assert ran.code == 3
    assert "4 trials found: 3 imported, 0 already there, 1 refused" in ran.out
    assert f"refused: {torn}/lock.json" in ran.out


def test_jobs_are_experiments_of_their_own_unless_one_is_named(
    proctor: Proctor, ledger: Path
) -> None:
    jobs = [COPIED / "01-binary-oracle-k1", COPIED / "02-binary-nop-k1"]
    ran = proctor("import", "harbor", *jobs, jobs[0], "--ledger", ledger, "--json")
    found = {each["experiment_id"] for each in facts_of(ran)["imported"]}
    assert found == {job.name for job in jobs}
    ran = proctor("import", "harbor", *jobs, "--experiment", "both", "--ledger", ledger, "--json")
    assert {each["experiment_id"] for each in facts_of(ran)["imported"]} == {"both"}
    assert counts_of(ran)[0] == 6


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nothing", "no such directory; expected a Harbor job directory"),
        (f"{SCRIPTED}/pass-two", "this is one trial; expected the job directory around it"),
        (f"{SCRIPTED}/lock.json", "this is a file; expected a Harbor job directory"),
    ],
)
def test_what_is_no_job_is_named_and_no_ledger_is_made(
    proctor: Proctor, ledger: Path, path: str, sentence: str
) -> None:
    found = COPIED / path
    if not found.exists() and "/" in path:
        found = find_trial(found.parent, found.name)
    ran = proctor("import", "harbor", found, "--ledger", ledger)
    assert ran.code == 2
    assert sentence in ran.err
    assert not ledger.exists()


def test_attempts_that_harbor_deleted_are_noted(proctor: Proctor, ledger: Path) -> None:
    ran = proctor("import", "harbor", COPIED / "20-flaky-retry3", "--ledger", ledger)
    assert ran.code == 0
    assert "harbor retried 6 times and kept 0 of those attempts" in ran.out


def test_kept_attempts_are_trials_of_their_own_and_go_back_to_their_place(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    trial = find_trial(job, "pass-two")
    shutil.copytree(trial, tmp_path / "first")
    shutil.copytree(tmp_path / "first", trial / "attempts" / "1")
    ran = proctor("import", "harbor", job, "--ledger", ledger, "--json")
    ids = [each["trial_id"] for each in facts_of(ran)["imported"]]
    assert (len(ids), f"{trial.name}.attempt-1" in ids) == (4, True)
    proctor("export", "--format", "harbor", "-o", tmp_path / "out", "--ledger", ledger)
    assert files_below(tmp_path / "out" / job.name) == files_below(job)


def test_a_secret_in_a_trial_or_in_the_jobs_log_is_not_sealed(
    proctor: Proctor, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    job = copy_job("01-binary-oracle-k1", tmp_path)
    (find_trial(job, "pass-two") / "trial.log").write_text("key hunter2-hunter2")
    words = ("import", "harbor", job, "--secret-env", "MY_KEY", "--ledger", ledger, "--json")
    ran = proctor(*words)
    assert (ran.code, counts_of(ran)) == (3, (3, 2, 0, 1, 0))
    assert "contains the value of MY_KEY" in facts_of(ran)["refused"][0]["message"]
    (job / "job.log").write_text("key hunter2-hunter2")
    ran = proctor(*words[:-2], tmp_path / "other", "--json")
    assert (ran.code, counts_of(ran)) == (2, (3, 0, 0, 3, 0))
    assert not (tmp_path / "other").exists()


def test_a_job_that_proctor_ran_brings_its_own_records(
    run: Run, proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    assert run("-p", TASKS / "pass-simple", *NULL).code == 0
    job = only_job(tmp_path)
    (trial,) = trials_of(job)
    ran = proctor("import", "harbor", job, "--ledger", ledger, "--json")
    assert ran.code == 0, ran.err
    (entry,) = entries_of(ledger)
    assert json.loads(bytes(entry.record)) == json.loads((trial / "record.json").read_text())
    # Its records are there from the first moment: without a result it may still be running.
    shutil.copytree(job, tmp_path / "copy" / job.name)
    (tmp_path / "copy" / job.name / trial.name / "result.json").unlink()
    edit_json(
        tmp_path / "copy" / job.name / "result.json", lambda result: result.update(finished_at=None)
    )
    early = proctor("import", "harbor", tmp_path / "copy", "--ledger", ledger, "--json")
    assert counts_of(early) == (1, 0, 0, 0, 1)
    # The ledger that the run itself sealed into has it already, without the job's own files.
    known = proctor("import", "harbor", job, "--json")
    assert counts_of(known) == (1, 0, 1, 0, 0)
    proctor("export", "--format", "harbor", "-o", tmp_path / "out", "--ledger", ledger)
    assert files_below(tmp_path / "out" / job.name) == files_below(job)
    bare = proctor("export", "--format", "harbor", "-o", tmp_path / "bare")
    assert bare.code == 3
    assert "the job's own files are not in the ledger" in bare.out


def test_a_job_that_proctor_resumed_brings_what_was_run_again_beside_the_former(
    run: Run, proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    assert run("-p", TASKS / "pass-simple", *NULL).code == 0
    job = only_job(tmp_path)
    (trial,) = trials_of(job)
    words = ("import", "harbor", job, "--json", "--ledger")
    assert counts_of(proctor(*words, ledger)) == (1, 1, 0, 0, 0)
    (trial / "result.json").unlink()
    assert proctor("resume", job).code == 0
    ran = proctor(*words, ledger)
    assert (ran.code, counts_of(ran)) == (0, (2, 1, 1, 0, 0))
    assert facts_of(ran)["imported"][0]["trial_id"] == f"{trial.name}.rerun-1"
    assert counts_of(proctor(*words, ledger)) == (2, 0, 2, 0, 0)
    # The run and the resume have sealed both themselves.
    own = Path(os.environ["PROCTOR_LEDGER"])
    assert counts_of(proctor(*words, own)) == (2, 0, 2, 0, 0)
    # A ledger that meets the job only now has the trial and the attempt that was kept.
    fresh = facts_of(proctor(*words, tmp_path / "fresh"))["imported"]
    assert [each["trial_id"] for each in fresh] == [f"{trial.name}.attempt-1", trial.name]
    proctor("export", "--format", "harbor", "-o", tmp_path / "out", "--ledger", tmp_path / "fresh")
    assert files_below(tmp_path / "out" / job.name) == files_below(job)
    # Of the one that has both under one name, what lies in the job comes back.
    told = proctor("export", "--format", "harbor", "-o", tmp_path / "out-2", "--ledger", ledger)
    assert (told.code, f"a later trial is in {job.name}/{trial.name}" in told.out) == (3, True)
    back = tmp_path / "out-2" / job.name / trial.name / "result.json"
    assert back.read_bytes() == (trial / "result.json").read_bytes()
    assert proctor("ledger", "verify", "--ledger", ledger).code == 0


@pytest.mark.parametrize("form", ["harbor", "aec-bench"])
def test_what_was_withheld_is_told_and_the_rest_is_given_back(
    proctor: Proctor, ledger: Path, tmp_path: Path, form: str
) -> None:
    job = COPIED / "01-binary-oracle-k1"
    proctor("import", "harbor", job, "--ledger", ledger)
    trial = find_trial(job, "pass-two").name
    said = ("--reason", "a key", "--author", "ana", "--ledger", ledger)
    assert proctor("ledger", "withhold", trial, "--evidence", "config.json", *said).code == 0
    ran = proctor("export", "--format", form, "-o", tmp_path / "out", "--ledger", ledger)
    assert (ran.code, "withheld" in ran.out, "config.json" in ran.out) == (3, True, True)
    (back,) = (tmp_path / "out").glob(f"**/{trial}/result.json")
    assert back.read_bytes() == (job / trial / "result.json").read_bytes()


@pytest.mark.parametrize("form", ["harbor", "aec-bench", "bundle"])
def test_evidence_that_is_gone_without_a_word_is_not_taken_for_withheld(
    proctor: Proctor, ledger: Path, tmp_path: Path, form: str
) -> None:
    proctor("import", "harbor", COPIED / "01-binary-oracle-k1", "--ledger", ledger)
    next((ledger / "artifacts").rglob("*.zst")).unlink()
    ran = proctor("export", "--format", form, "-o", tmp_path / "out", "--ledger", ledger)
    assert (ran.code, "is missing" in ran.err) == (1, True)


def test_two_jobs_of_one_name_are_not_mixed(proctor: Proctor, ledger: Path, tmp_path: Path) -> None:
    for name, experiment in (("01-binary-oracle-k1", "one"), ("02-binary-nop-k1", "two")):
        job = copy_job(name, tmp_path / experiment).rename(tmp_path / experiment / "job")
        into = ("--experiment", experiment, "--ledger", ledger)
        assert proctor("import", "harbor", job, *into).code == 0
    out = ("export", "--format", "harbor", "--ledger", ledger, "-o")
    ran = proctor(*out, tmp_path / "out")
    assert (ran.code, ran.out.count("from another job that is also named job")) == (3, 3)
    assert files_below(tmp_path / "out" / "job") == files_below(tmp_path / "two" / "job")
    assert proctor(*out, tmp_path / "out-1", "--experiment", "one").code == 0
    assert files_below(tmp_path / "out-1" / "job") == files_below(tmp_path / "one" / "job")


def test_many_refusals_are_told_by_their_reasons(
    proctor: Proctor, ledger: Path, tmp_path: Path
) -> None:
    job = copy_job("42-config-multi", tmp_path)
    for trial in sorted(path for path in job.iterdir() if path.is_dir())[:30]:
        os.truncate(trial / "result.json", 0)
    ran = proctor("import", "harbor", job, "--ledger", ledger)
    assert ran.code == 3
    assert "48 trials found: 18 imported, 0 already there, 30 refused" in ran.out
    refused = [line for line in ran.out.splitlines() if line.startswith("refused: ")]
    assert len(refused) == 1
    assert refused[0].startswith("refused: 30 trials, such as ")


def test_the_command_that_comes_next_works_also_beside_a_directory_of_that_name(
    proctor: Proctor, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loose").mkdir()
    said = '{"step": 1, "role": "assistant", "content": "x", "timestamp": "2026-01-02T03:04:05Z"}\n'
    (tmp_path / "loose" / "a.jsonl").write_text(said)
    monkeypatch.chdir(tmp_path)
    ran = proctor("import", "traces", "loose", "--ledger", ledger)
    following = ran.out.splitlines()[-1].removeprefix("next: proctor ")
    assert following == f"trace summary --experiment loose --ledger {ledger}"
    assert "loose/a.jsonl" in proctor(*following.split()).out
