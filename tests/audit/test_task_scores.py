"""A job's scores by task, as score records want them."""

from pathlib import Path

import pytest

from proctor.audit.task_scores import task_scores
from proctor.errors import ScoreRecordError
from proctor.harbor.job import load_job
from tests.audit.directories import COPIED, make_job


def test_scores_are_in_the_order_of_the_attempts() -> None:
    scores = task_scores(load_job(str(COPIED / "04-binary-scripted-k5")))
    assert sorted(scores) == ["oracle-wrong", "pass-simple", "pass-two"]
    assert {tuple(sorted(found)) for found in scores.values()} == {(0.0, 0.0, 1.0, 1.0, 1.0)}


def test_no_reward_is_zero() -> None:
    scores = task_scores(load_job(str(COPIED / "06-errors-oracle-k1")))
    assert scores["build-fail"] == [0.0]
    assert scores["good-one"] == [1.0]


def test_whole_numbers_become_floats(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"]})
    (job / "a__job1" / "verifier" / "reward.json").write_text('{"reward": 1}')
    ((score,),) = task_scores(load_job(str(job))).values()
    assert repr(score) == "1.0"


def test_a_job_of_several_groups_is_refused_by_their_names() -> None:
    with pytest.raises(ScoreRecordError, match=r"2 groups \(scripted__model-x__binary, scripted__"):
        task_scores(load_job(str(COPIED / "14-two-models")))


def test_planned_trials_without_a_result_are_refused() -> None:
    job = load_job(str(COPIED / "31-killed-before-resume"))
    with pytest.raises(ScoreRecordError) as caught:
        task_scores(job)
    assert str(caught.value) == (
        f"{job.directory}: 2 of 4 planned trials have no result; a score record contains every task"
    )


def test_one_broken_trial_is_one_too_few(tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", {"a": ["1"], "b": ["1"]})
    (job / "b__job1" / "result.json").write_text("{")
    with pytest.raises(ScoreRecordError, match="1 of 2 planned trials have no result"):
        task_scores(load_job(str(job)))


def scores_of(directory: Path, rewards: str) -> dict[str, list[float]]:
    """Scores of a job with one trial and this reward.json."""
    job = make_job(directory, {"a": ["1"]})
    (job / "a__job1" / "verifier" / "reward.json").write_text(rewards)
    return task_scores(load_job(str(job)))


def test_of_several_rewards_the_one_named_reward_counts(tmp_path: Path) -> None:
    assert scores_of(tmp_path / "job", '{"speed": 0.5, "reward": 1}') == {"a": [1.0]}


def test_several_rewards_and_none_named_reward_are_no_score(tmp_path: Path) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        scores_of(tmp_path / "job", '{"speed": 0.5, "style": 1}')
    assert str(caught.value) == (
        f"{tmp_path / 'job'}: trial 'a__job1' has 2 rewards (speed, style); "
        "expected one, or one named reward"
    )


def test_a_reward_too_large_for_a_float_is_no_score(tmp_path: Path) -> None:
    with pytest.raises(ScoreRecordError) as caught:
        scores_of(tmp_path / "job", f'{{"reward": {10**400}}}')
    assert str(caught.value) == (
        f"{tmp_path / 'job'}: trial 'a__job1' has a reward that is too large for a float; "
        "expected a number from 0 to 1"
    )


def test_a_job_without_trials_has_no_scores(tmp_path: Path) -> None:
    assert task_scores(load_job(str(make_job(tmp_path / "job", {})))) == {}
