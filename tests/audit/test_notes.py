"""What is worth a look: too many at once, failed tests beside a full reward, odd costs."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from proctor.audit.findings import Finding, Kind
from proctor.audit.job import audit_job
from tests.audit.directories import copy_job, edit_json, find_trial, make_job, shift_trial

FOUR_AT_ONCE = "03-binary-oracle-k5"
BINARY = "01-binary-oracle-k1"


def notes(job: Path, kind: Kind) -> list[Finding]:
    return [note for note in audit_job(str(job)).notes if note.kind is kind]


def test_more_trials_at_once_than_the_plan_allows_are_noted(tmp_path: Path) -> None:
    job = copy_job(FOUR_AT_ONCE, tmp_path)
    assert notes(job, Kind.OVERLAPPING_TRIALS) == []
    edit_json(job / "lock.json", lambda lock: lock.update(n_concurrent_trials=3))
    (note,) = notes(job, Kind.OVERLAPPING_TRIALS)
    assert note.message == "4 trials ran at once; lock.json allows 3"


def test_a_trial_a_day_off_its_job_is_let_pass_for_clocks_without_a_zone(tmp_path: Path) -> None:
    job = copy_job(BINARY, tmp_path)
    shift_trial(find_trial(job, "pass-two"), timedelta(hours=-14))
    assert audit_job(str(job)).differences == []
    shift_trial(find_trial(job, "pass-two"), timedelta(days=3))
    (finding,) = audit_job(str(job)).differences
    assert (finding.kind, "ended at" in finding.message) == (Kind.IMPOSSIBLE_TIME, True)


@pytest.mark.parametrize(
    "printed",
    [
        "FAILED tests/test_a.py::test_b - assert 1 == 2\n",
        "\x1b[31mFAILED\x1b[0m tests/test_a.py::test_b\n",
        "===== 1 failed, 3 passed in 0.12s =====\r\n",
        "===== 2 passed, 1 error in 0.12s =====\n",
        "Ran 3 tests\n\nFAILED (failures=1)\n",
        "--- FAIL: TestOne (0.00s)\nFAIL\texample.com/one\t0.01s\n",
        "test result: FAILED. 1 passed; 1 failed\n",
    ],
)
def test_failed_tests_beside_a_full_reward_are_noted(tmp_path: Path, printed: str) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"], "b": ["0"]})
    for trial in job.glob("*__*"):
        (trial / "verifier" / "test-stdout.txt").write_text(f"collected 4\n{printed}done\n")
    (note,) = notes(job, Kind.FAILED_OUTPUT)
    assert note.path == f"{job}/a__job1/verifier/test-stdout.txt"
    assert "a__job1 has a full reward, and its tests printed: " in note.message
    assert "\x1b" not in note.message


@pytest.mark.parametrize(
    "printed",
    ["1 passed\n", "0 failed, 2 passed\n", "XFAIL tests/a.py\n", "the build FAILED before\n", ""],
)
def test_tests_that_passed_are_not_noted(tmp_path: Path, printed: str) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    (job / "a__job1" / "verifier" / "test-stdout.txt").write_text(printed)
    assert notes(job, Kind.FAILED_OUTPUT) == []


def test_an_output_of_any_size_or_kind_is_looked_at_safely(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"], "b": ["1"]})
    long, pipe = (job / f"{name}__job1" / "verifier" / "test-stdout.txt" for name in "ab")
    with long.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, os.SEEK_END)
        file.write(b"\nFAILED tests/a.py::b\n")
    os.mkfifo(pipe)
    (note,) = notes(job, Kind.FAILED_OUTPUT)
    assert note.path == str(long)


def test_a_key_of_a_reward_file_that_stands_twice_is_a_difference(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    (job / "a__job1" / "verifier" / "reward.json").write_text('{"reward": 0, "reward": 1.0}')
    (finding,) = audit_job(str(job)).differences
    assert finding.kind is Kind.DUPLICATE_KEY
    assert "'reward' occurs twice in one object" in finding.message
