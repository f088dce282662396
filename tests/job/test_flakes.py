"""What the trials of a job left of further verifications, added up."""

from pathlib import Path

import pytest

from proctor.job.flakes import Flakes, find_flakes
from proctor.trial.flakes import FROZEN, Reverification, note_rewards, render_verified_again


def leave(job: Path, trial: str, *rewards: float) -> None:
    kept = Reverification(step=None, state=FROZEN)
    for reward in rewards:
        kept.add(note_rewards({"reward": reward}, 0.1))
    (job / trial).mkdir()
    text = render_verified_again("t", "abc", len(rewards) - 1, [kept])
    (job / trial / "verify-again.json").write_text(text)


def find(job: Path) -> Flakes:
    return find_flakes(job, sorted(path.name for path in job.iterdir()), 2)


def test_two_trials_that_end_differently_are_no_flake(tmp_path: Path) -> None:
    leave(tmp_path, "a", 0.0, 0.0, 0.0)
    leave(tmp_path, "b", 1.0, 1.0, 1.0)
    (task,) = find(tmp_path).tasks
    assert (task.trials, task.verifications, task.results) == (["a", "b"], 6, 2)
    assert (task.pairs, task.differing_pairs, task.flake_rate) == (6, 0, 0.0)


def test_pairs_of_all_trials_are_added_up(tmp_path: Path) -> None:
    leave(tmp_path, "a", 0.0, 0.0, 0.0)
    leave(tmp_path, "b", 1.0, 0.0, 1.0)
    (task,) = find(tmp_path).tasks
    assert (task.pairs, task.differing_pairs, task.n_differing) == (6, 2, 1)
    assert task.flake_rate == pytest.approx(1 / 3)


def test_a_torn_file_is_told_and_one_that_is_not_there_has_no_part(tmp_path: Path) -> None:
    leave(tmp_path, "a", 1.0, 1.0)
    leave(tmp_path, "b", 1.0, 1.0)
    (tmp_path / "b" / "verify-again.json").write_text('{"task"')
    (tmp_path / "c").mkdir()
    found = find(tmp_path)
    assert [task.trials for task in found.tasks] == [["a"]]
    (missed,) = found.not_again
    assert (missed.trial, missed.reason[:33]) == ("b", "verify-again.json cannot be read:")
