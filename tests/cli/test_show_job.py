"""`proctor show JOB`: a table of its trials, and those that did not pass."""

import json
from pathlib import Path

import pytest

from tests.cli.programs import Proctor

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
ERRORS = JOBS / "06-errors-oracle-k1"


def test_a_job_is_a_table_of_its_trials_and_names_the_command_for_one(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ran = proctor("show", JOBS / "01-binary-oracle-k1")
    assert (ran.code, ran.err) == (0, "")
    head, _, titles, *lines, _, command = ran.out.splitlines()
    assert head == f"{JOBS / '01-binary-oracle-k1'}: 3 trials: 2 passed, 1 failed"
    assert titles.split() == ["task", "attempt", "reward", "outcome", "time", "trial"]
    cells = [line.split() for line in lines]
    assert [each[:4] for each in cells] == [
        ["oracle-wrong", "1", "0", "failed"],
        ["pass-simple", "1", "1", "passed"],
        ["pass-two", "1", "1", "passed"],
    ]
    assert command == f"  proctor show {JOBS / '01-binary-oracle-k1' / cells[0][-1]}"


def test_failed_leaves_out_what_passed_and_names_exceptions(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    document = json.loads(proctor("show", ERRORS, "--failed", "--json").out)
    assert document["thing"] == "job"
    found = {each["task_id"]: (each["outcome"], each["exception"]) for each in document["trials"]}
    assert found["build-fail"] == ("errored", "RuntimeError")
    assert "passed" not in {outcome for outcome, _ in found.values()}
    listed = proctor("show", ERRORS, "--failed").out
    assert "  errored: RuntimeError  " in listed
    assert "  passed, errored: AgentTimeoutError  " in proctor("show", ERRORS).out
    assert all(f"  {Path(each['directory']).name}\n" in listed for each in document["trials"])


def test_errored_trials_are_counted_whatever_they_scored(proctor: Proctor) -> None:
    head = proctor("show", ERRORS).out.partition("\n")[0]
    assert ": 9 trials: 3 passed, 6 not scored; 7 errored (scored or not): " in head
    assert "AgentTimeoutError 1" in head


def test_a_score_without_a_number_is_not_called_unscored(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = proctor("show", JOBS / "12-nan-oracle").out
    assert ": 3 trials: 1 passed, 2 without a number\n" in shown
    rows = [line for line in shown.splitlines() if line.split()[2:3] == ["no"]]
    assert len(rows) == 2
    assert all("  no number  without a number  " in row for row in rows)


def test_a_narrow_terminal_cuts_no_name_of_a_trial(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listed = proctor("show", ERRORS, "--failed").out
    assert "  agent-timeout-frac__H62dDyC\n" in listed


def test_attempts_at_a_task_are_numbered(proctor: Proctor) -> None:
    trials = json.loads(proctor("show", JOBS / "14-two-models", "--json").out)["trials"]
    by_slot: dict[tuple[str, str, str], list[int]] = {}
    for each in trials:
        key = each["task_id"], each["harness"], each["model"]
        by_slot.setdefault(key, []).append(each["attempt"])
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_slot.values())


@pytest.mark.parametrize("options", [("--raw",), ("--changes",), ("--step", "1"), ("--full",)])
def test_options_for_a_trial_mean_nothing_for_a_job(
    proctor: Proctor, options: tuple[str, ...]
) -> None:
    ran = proctor("show", ERRORS, *options)
    assert (ran.code, ran.out) == (2, "")
    assert f"{options[0]} cannot be used with a job" in ran.err


def test_failed_means_nothing_for_a_trial(proctor: Proctor) -> None:
    trial = next(each for each in ERRORS.iterdir() if each.is_dir())
    ran = proctor("show", trial, "--failed")
    assert (ran.code, ran.out) == (2, "")
    assert "--failed cannot be used with a trial" in ran.err


def test_people_read_interrupted_and_programs_the_class_that_harbor_writes(
    proctor: Proctor,
) -> None:
    job = JOBS / "30-cancelled-before-resume"
    shown = proctor("show", job).out
    assert "2 passed, 2 not scored; 2 errored (scored or not): interrupted 2" in shown
    assert "CancelledError" not in shown
    stopped = json.loads(proctor("show", job, "--failed", "--json").out)["trials"]
    assert [each["exception"] for each in stopped] == ["CancelledError"] * 2
    trial = proctor("show", stopped[0]["directory"]).out
    assert trial.startswith("interrupted: the trial was cancelled\n")
