"""Links in a stranger's trial: followed where they stay inside it, and nowhere else."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from proctor.errors import JobError, LinkedRewardError
from proctor.harbor.job import load_job
from proctor.harbor.trial import FoundTrial, load_trial
from proctor.reward.profile import DEFAULT_PROFILE
from proctor.reward.read import load_rewards
from proctor.reward.score import Scored, Unscored
from tests.audit.directories import edit_json, make_job

type Change = Callable[[Path], object]


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A trial whose verifier gave 1, with a file of the same bytes outside."""
    make_job(tmp_path / "job", {"a": ["1"]})
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "reward.txt").write_text("1")
    return tmp_path / "job" / "a__job1"


def load(trial: Path) -> FoundTrial:
    return load_trial(str(trial), DEFAULT_PROFILE)


def _to_outside(trial: Path) -> None:
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.txt").symlink_to(trial.parent.parent / "outside" / "reward.txt")


def _relative_to_outside(trial: Path) -> None:
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.txt").symlink_to("../../../outside/reward.txt")


def _to_sibling(trial: Path) -> None:
    """A pass of another attempt in the same job."""
    shutil.copytree(trial, trial.parent / "b__job1")
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.txt").symlink_to("../../b__job1/verifier/reward.txt")


def _json_to_outside(trial: Path) -> None:
    (trial.parent.parent / "outside" / "reward.json").write_text('{"reward": 1}')
    (trial / "verifier" / "reward.json").symlink_to("../../../outside/reward.json")


def _directory_to_outside(trial: Path) -> None:
    shutil.rmtree(trial / "verifier")
    (trial / "verifier").symlink_to(trial.parent.parent / "outside")


def _through_a_directory(trial: Path) -> None:
    """The link itself stays inside; the directory on its way does not."""
    (trial / "way").symlink_to(trial.parent.parent / "outside")
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.txt").symlink_to("../way/reward.txt")


def _link_to_link(trial: Path) -> None:
    (trial / "verifier" / "next").symlink_to(trial.parent.parent / "outside" / "reward.txt")
    (trial / "verifier" / "reward.txt").unlink()
    (trial / "verifier" / "reward.txt").symlink_to("next")


def _dangling_outside(trial: Path) -> None:
    """Here there is nothing; on its maker's machine there may be a 1."""
    (trial / "verifier" / "reward.json").symlink_to(trial.parent.parent / "not-here.json")


def _to_device(trial: Path) -> None:
    (trial / "verifier" / "reward.json").symlink_to("/dev/stdin")


OUT = [
    _to_outside,
    _relative_to_outside,
    _to_sibling,
    _json_to_outside,
    _directory_to_outside,
    _through_a_directory,
    _link_to_link,
    _dangling_outside,
    _to_device,
]


@pytest.mark.parametrize("change", OUT)
def test_a_link_that_leads_out_leaves_the_trial_unscored_with_a_reason(
    trial: Path, change: Change
) -> None:
    change(trial)
    found = load(trial)
    assert isinstance(found.evidence, Unscored)
    assert found.evidence.error == LinkedRewardError.__name__
    assert "is a link that leads out of the trial" in found.evidence.reason
    assert (found.trial.verdict, found.follows) == (None, False)


def test_harbors_own_rule_follows_it(trial: Path) -> None:
    _to_outside(trial)
    assert load_rewards(str(trial / "verifier")) == {"reward": 1.0}
    with pytest.raises(LinkedRewardError, match="expected a file of the trial itself"):
        load_rewards(str(trial / "verifier"), trial=str(trial))


def _to_neighbour(trial: Path) -> None:
    (trial / "verifier" / "reward.txt").rename(trial / "verifier" / "real")
    (trial / "verifier" / "reward.txt").symlink_to("real")


def _absolute_inside(trial: Path) -> None:
    (trial / "verifier" / "reward.txt").rename(trial / "real")
    (trial / "verifier" / "reward.txt").symlink_to(trial.absolute() / "real")


def _directory_inside(trial: Path) -> None:
    (trial / "verifier").rename(trial / "artifacts")
    (trial / "verifier").symlink_to("artifacts")


def _out_and_back(trial: Path) -> None:
    """By way of the job's directory, and back into this very trial."""
    (trial / "verifier" / "reward.txt").rename(trial / "real")
    (trial / "verifier" / "reward.txt").symlink_to(f"../../{trial.name}/real")


@pytest.mark.parametrize(
    "change", [_to_neighbour, _absolute_inside, _directory_inside, _out_and_back]
)
def test_a_link_that_stays_inside_is_followed(trial: Path, change: Change) -> None:
    change(trial)
    found = load(trial)
    assert (found.evidence, found.follows) == (Scored({"reward": 1.0}), True)


def test_it_is_followed_also_in_a_job_that_is_named_by_a_link(trial: Path, tmp_path: Path) -> None:
    _to_neighbour(trial)
    (tmp_path / "name").symlink_to("job")
    (found,) = load_job(str(tmp_path / "name")).trials
    assert found.follows


def test_a_pipe_is_not_waited_for_and_leaves_the_trial_unscored(trial: Path) -> None:
    (trial / "verifier" / "reward.txt").unlink()
    os.mkfifo(trial / "verifier" / "reward.txt")
    found = load(trial)
    assert isinstance(found.evidence, Unscored)
    assert found.trial.verdict is None


def test_the_reward_of_a_step_is_held_to_the_same_rule(trial: Path, tmp_path: Path) -> None:
    step = {"step_name": "one", "verifier_result": {"rewards": {"reward": 1.0}}}
    edit_json(trial / "result.json", lambda result: result.update(step_results=[step]))
    (trial / "steps" / "one").mkdir(parents=True)
    (trial / "steps" / "one" / "verifier").symlink_to(trial / "verifier")
    assert load(trial).follows
    (trial / "steps" / "one" / "verifier").unlink()
    (trial / "steps" / "one" / "verifier").symlink_to(tmp_path / "outside")
    assert load(trial).trial.verdict is None


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_a_result_that_is_a_link_is_read_only_from_inside(
    trial: Path, tmp_path: Path, place: str
) -> None:
    target = trial / "kept" if place == "inside" else tmp_path / "outside" / "result.json"
    (trial / "result.json").rename(target)
    (trial / "result.json").symlink_to(target)
    if place == "inside":
        assert load(trial).follows
        return
    with pytest.raises(JobError, match="a link that leads out of the directory, not followed"):
        load(trial)
    (problem,) = load_job(str(trial.parent)).broken
    assert problem.is_linked
