"""`proctor audit`: findings for people and for programs, and two runs side by side."""

import json
import shutil
from pathlib import Path

import pytest

from tests.audit.directories import (
    COPIED,
    copy_job,
    edit_json,
    find_trial,
    listing,
    make_job,
    write_json,
)
from tests.cli.programs import Proctor, run_child

BINARY, NOP = COPIED / "01-binary-oracle-k1", COPIED / "02-binary-nop-k1"


@pytest.fixture
def doctored(tmp_path: Path) -> Path:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    (find_trial(job, "oracle-wrong") / "verifier" / "reward.txt").write_text("1")
    return job


def test_an_honest_job_passes(proctor: Proctor) -> None:
    ran = proctor("audit", BINARY)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{BINARY}: the published numbers follow (harbor-0.13.1)\n"


def test_differences_are_named_by_kind_file_and_value(proctor: Proctor, doctored: Path) -> None:
    ran = proctor("audit", doctored)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[0] == f"{doctored}: 3 differences (harbor-0.13.1)"
    assert lines[1:3] == [
        "  edited-reward  oracle-wrong__2j385Vz/result.json",
        '    the trial result claims {"reward": 0.0}, the reward file holds {"reward": 1.0}',
    ]


def test_a_dropped_trial_comes_first_and_its_consequences_are_folded(
    proctor: Proctor, tmp_path: Path
) -> None:
    job = copy_job("04-binary-scripted-k5", tmp_path)
    trial = find_trial(job, "oracle-wrong")
    shutil.rmtree(trial)
    ran = proctor("audit", job)
    lines = ran.out.splitlines()
    assert lines[0] == f"{job}: 11 differences (harbor-0.13.1)"
    assert lines[1:4] == [
        "  trial-without-directory  result.json",
        f"    {trial.name} is counted, and has no directory with a result",
        "  consequences  10 published numbers in result.json: edited-metric, edited-pass-at-k, "
        "edited-reward-stats, edited-counter, edited-usage",
    ]
    group = "evals.scripted__model-x__binary"
    assert lines[4:8] == [
        f"    {group}.metrics[0].mean is 0.6; the trials give 0.6428571428571429",
        f'    {group}.pass_at_k["2"] is 0.9; the trials give 0.9333333333333332 (and 1 other part)',
        f'    {group}.reward_stats.reward["0.0"] has {trial.name}; the trials do not give it',
        "    … and 7 more; --json lists them",
    ]
    (document,) = json.loads(proctor("audit", job, "--json").out)["jobs"]
    kinds = [each["kind"] for each in document["differences"]]
    assert (document["n_causes"], kinds[0], len(kinds)) == (1, "trial-without-directory", 11)


def test_one_difference_is_not_several(proctor: Proctor, tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    edit_json(job / "result.json", lambda result: result["stats"].update(n_errored_trials=1))
    assert ": 1 difference (" in proctor("audit", job).out


def test_notes_of_one_kind_are_told_once(proctor: Proctor) -> None:
    ran = proctor("audit", COPIED / "12-nan-oracle")
    assert ran.code == 0
    assert ran.out.count("note: lost-number") == 1
    assert "(and 1 more; --json lists them)" in ran.out


def test_integrity_findings_have_their_levels_and_alarms_come_first(
    proctor: Proctor, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"], "b": ["1"]})
    for task, codes in {"a": ["output-cut"], "b": ["output-cut", "late-reward", "new"]}.items():
        findings = [{"code": code, "phase": "verify", "message": ""} for code in codes]
        write_json(find_trial(job, task) / "findings.json", findings)
    ran = proctor("audit", job)
    assert ran.code == 0
    lines = ran.out.splitlines()
    at = lines.index("  note: integrity-finding  b__job1/findings.json")
    assert lines[at + 1 : at + 6] == [
        "    alarm  late-reward in 1 trial",
        "      A reward file changed after the test script had ended.",
        "    notice  new in 1 trial",
        "    info  output-cut in 2 trials",
        "      A command printed more than is kept.",
    ]
    (document,) = json.loads(proctor("audit", job, "--json").out)["jobs"]
    notes = [note for note in document["notes"] if note["kind"] == "integrity-finding"]
    assert {note["found"]: note["level"] for note in notes} == {
        "output-cut": "info", "late-reward": "alarm", "new": "notice",
    }  # fmt: skip


def test_one_job_that_does_not_follow_fails_them_all(proctor: Proctor, doctored: Path) -> None:
    ran = proctor("audit", BINARY, doctored, NOP)
    assert ran.code == 1
    assert [line for line in ran.out.splitlines() if not line.startswith(" ")] == [
        f"{BINARY}: the published numbers follow (harbor-0.13.1)",
        f"{doctored}: 3 differences (harbor-0.13.1)",
        f"{NOP}: the published numbers follow (harbor-0.13.1)",
    ]


def test_a_script_gets_every_finding(proctor: Proctor, doctored: Path) -> None:
    ran = proctor("audit", doctored, COPIED / "20-flaky-retry3", "--json")
    assert ran.code == 1
    document = json.loads(ran.out)
    first, second = document["jobs"]
    assert (document["follows"], first["follows"], second["follows"]) == (False, False, True)
    assert first["differences"][0] == {
        "kind": "edited-reward",
        "path": f"{doctored}/oracle-wrong__2j385Vz/result.json",
        "message": 'the trial result claims {"reward": 0.0}, the reward file holds {"reward": 1.0}',
        "found": '{"reward": 0.0}',
        "expected": '{"reward": 1.0}',
    }
    assert [note["kind"] for note in second["notes"]] == ["lost-attempts"]


def test_the_rules_can_be_told(proctor: Proctor) -> None:
    job = COPIED / "12-nan-oracle"
    assert proctor("audit", job).code == 0
    ran = proctor("audit", job, "--profile", "harbor-0.25")
    assert ran.code == 1
    assert "(harbor-0.25)" in ran.out


def test_nothing_of_the_job_is_run_unless_asked_for(proctor: Proctor, tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    script = tmp_path / "metric.py"
    script.write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    metric = {"type": "uv-script", "kwargs": {"script_path": str(script)}}
    edit_json(job / "config.json", lambda config: config.update(metrics=[metric]))
    ran = proctor("audit", job)
    assert ran.code == 1
    assert "cannot be shown: not-recomputed" in ran.out
    assert not (tmp_path / "mark").exists()


def test_a_run_is_the_same_as_its_copy(proctor: Proctor, tmp_path: Path) -> None:
    copy = copy_job("12-nan-oracle", tmp_path)
    ran = proctor("audit", COPIED / "12-nan-oracle", "--against", copy)
    assert ran.code == 0
    assert ran.out == "12-nan-oracle and 12-nan-oracle: all tasks have the same result\n"


def test_two_runs_differ_task_by_task(proctor: Proctor) -> None:
    before = listing(BINARY), listing(NOP)
    ran = proctor("audit", BINARY, "--against", NOP)
    assert ran.code == 1
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0] == ["task", "attempt", "what", "01-binary-oracle-k1", "02-binary-nop-k1"]
    assert ["pass-two", "1", "reward", "1.0", "0.0"] in rows
    assert ["pass-two", "1", "resolved", "True", "False"] in rows
    assert (listing(BINARY), listing(NOP)) == before


def test_a_script_gets_the_differences_of_two_runs(proctor: Proctor) -> None:
    ran = proctor("audit", BINARY, "--against", NOP, "--json")
    document = json.loads(ran.out)
    assert (ran.code, document["same"]) == (1, False)
    assert document["differences"][0] == {
        "task": "pass-two",
        "attempt": 1,
        "field": "reward",
        "left": "1.0",
        "right": "0.0",
    }


def test_a_task_that_one_run_lacks_has_no_attempt(proctor: Proctor, tmp_path: Path) -> None:
    left = make_job(tmp_path / "left", {"a": ["1"]})
    right = make_job(tmp_path / "right", {"b": ["1"]})
    rows = [line.split() for line in proctor("audit", left, "--against", right).out.splitlines()]
    assert ["a", "task", "present", "missing"] in rows


def test_rewards_may_be_compared_with_a_tolerance(proctor: Proctor, tmp_path: Path) -> None:
    left = make_job(tmp_path / "left", {"a": ["0.25"]})
    right = make_job(tmp_path / "right", {"a": ["0.26"]})
    assert proctor("audit", left, "--against", right).code == 1
    assert proctor("audit", left, "--against", right, "--epsilon", "0.02").code == 0
    assert proctor("audit", left, "--against", right, "--epsilon", "-1").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "0.5"], "--epsilon requires --against"),
        (["--epsilon", "0"], "--epsilon requires --against"),
        (
            ["--against", NOP, "--run-metric-scripts"],
            "--run-metric-scripts cannot be combined with --against",
        ),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(
    proctor: Proctor, arguments: list[object], message: str
) -> None:
    ran = proctor("audit", BINARY, *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith(f"Error: {message}\n")


def test_a_directory_is_named_as_it_was_given(
    proctor: Proctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BINARY.parent)
    for command in ("audit", "score"):
        (job,) = json.loads(proctor(command, BINARY.name, "--json").out)["jobs"]
        assert job["directory"] == BINARY.name


def test_only_one_job_is_compared_with_another(proctor: Proctor) -> None:
    ran = proctor("audit", BINARY, NOP, "--against", BINARY)
    assert ran.code == 2
    assert "--against compares one job with another; 2 were given" in ran.err


def test_the_other_run_must_be_a_job_too(proctor: Proctor, tmp_path: Path) -> None:
    ran = proctor("audit", BINARY, "--against", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"proctor: {tmp_path}: empty directory; expected a Harbor job directory\n"


@pytest.mark.parametrize("columns", ["80", "200"])
def test_a_table_is_as_wide_as_the_terminal_and_loses_nothing(columns: str) -> None:
    left, right = COPIED / "42-config-multi", COPIED / "14-two-models"
    ran = run_child("audit", left, "--against", right, env={"COLUMNS": columns, "NO_COLOR": "1"})
    assert ran.code == 1
    assert max(map(len, ran.out.splitlines())) <= int(columns)
    assert "\x1b" not in ran.out
    assert "multi-metric" in ran.out
