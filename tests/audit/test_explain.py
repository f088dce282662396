"""An explanation derives every number from its operands, to the last bit."""

import re
from pathlib import Path

import pytest

from proctor.audit.certificate import make_certificate
from proctor.audit.explain import explain
from proctor.audit.scoring import score_jobs
from proctor.harbor.job import load_job
from proctor.reward.profile import DEFAULT_PROFILE
from tests.audit.directories import COPIED, JOBS, NAMES, copy_job, edit_json


def explained(job: Path) -> list[str]:
    scoring = score_jobs([load_job(str(job))], DEFAULT_PROFILE)
    return list(explain(make_certificate(scoring)))


@pytest.mark.parametrize("name", NAMES)
def test_every_trial_of_a_job_is_an_operand(name: str) -> None:
    lines = explained(JOBS / name)
    job = load_job(str(JOBS / name))
    operands = [match[1] for line in lines if (match := re.match(r"  \[ *\d+\] (\S+): ", line))]
    assert sorted(operands) == sorted(found.trial.name for found in job.trials)


def test_a_mean_is_shown_as_sum_over_count() -> None:
    lines = explained(COPIED / "01-binary-oracle-k1")
    assert lines[1] == "job 01-binary-oracle-k1: trials in the order of the plan in lock.json"
    assert lines[3:] == [
        "group oracle__binary: 3 trials",
        "  [1] oracle-wrong__2j385Vz: reward = 0x0.0p+0 (0.0) (reward file)",
        "  [2] pass-two__uNMGZxy: reward = 0x1.0000000000000p+0 (1.0) (reward file)",
        "  [3] pass-simple__iSXvMm8: reward = 0x1.0000000000000p+0 (1.0) (reward file)",
        "  mean = 0x1.5555555555555p-1 (0.6666666666666666): compensated sum "
        "0x1.0000000000000p+1 (2.0) / 3 of [1]..[3]",
        "",
        "result line: the plain mean of the metric values (1)",
        "  (1) 0x1.5555555555555p-1 (0.6666666666666666)",
        "  score = 0x1.5555555555555p-1 (0.6666666666666666)",
        "  resolved = round(score x 3) = 2, halves to even",
        "  status completed, total 3",
    ]


def test_every_metric_and_key_has_its_line() -> None:
    lines = explained(COPIED / "42-config-multi")
    assert "  sum of correctness = 2 (int): compensated sum of [1]..[4]" in lines
    assert "  max of reward = 0x1.0000000000000p-1 (0.5): first largest of [1]..[4]" in lines
    assert "  min of speed = 0 (int): first smallest of [1]..[4]" in lines
    assert "result line: the plain mean of the metric values (60)" in lines


def test_pass_at_k_is_shown_task_by_task() -> None:
    lines = explained(COPIED / "04-binary-scripted-k5")
    start = lines.index("    pass@2 of oracle-wrong: 3 of 5 attempts: 0x1.ccccccccccccdp-1 (0.9)")
    assert lines[start + 3] == "  pass@2 = 0x1.ccccccccccccdp-1 (0.9): mean over 3 tasks"


def test_trials_without_a_reward_are_said_to_count_as_zero() -> None:
    text = "\n".join(explained(COPIED / "05-rewards-oracle-k1"))
    assert "missing-reward__3s5NpmR: no reward, counts as 0 (trial result)" in text
    assert "json-empty-object__JidUDDG: no reward key, counts as 0 (reward file)" in text


def test_numbers_that_make_no_score_are_shown() -> None:
    lines = explained(COPIED / "12-nan-oracle")
    assert "  (1) nan (nan)" in lines
    assert "  they make no score: harbor_result_malformed" in lines


def test_a_metric_that_was_not_computed_is_shown_as_it_is(tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    metrics = [{"type": "uv-script"}, {"type": "uv-script"}]
    edit_json(job / "config.json", lambda config: config.update(metrics=metrics))
    published = [{"best": 0.5}]
    edit_json(
        job / "result.json",
        lambda result: result["stats"]["evals"]["oracle__binary"].update(metrics=published),
    )
    lines = explained(job)
    assert "  uv-script: carried over, {'best': 0.5}" in lines
    assert "  uv-script: carried over, no value" in lines


def test_an_inferred_metric_is_said_to_be(tmp_path: Path) -> None:
    job = copy_job("01-binary-oracle-k1", tmp_path)
    (job / "config.json").unlink()
    assert any(line.endswith("[1]..[3] (metric inferred)") for line in explained(job))
