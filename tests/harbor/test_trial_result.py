"""A trial's result.json, beside those that real harbor wrote."""

import math
from pathlib import Path

import pytest
from pydantic_core import PydanticSerializationError

from proctor.harbor.configs import TaskConfig, TrialConfig
from proctor.harbor.trial import load_trial
from proctor.harbor.trial_result import (
    AgentContext,
    GitTaskId,
    LocalTaskId,
    PackageTaskId,
    TrialResult,
    VerifierResult,
    counted,
    parse_trial_result,
    render_trial_result,
    task_id_of,
)
from proctor.reward.profile import DEFAULT_PROFILE

JOBS = Path(__file__).parent.parent / "data" / "harbor" / "jobs"
WRITTEN = sorted(JOBS.glob("*/*/result.json"))


def test_every_result_of_real_harbor_is_rendered_as_it_was_read() -> None:
    assert len(WRITTEN) > 100
    for path in WRITTEN:
        data = path.read_bytes()
        assert render_trial_result(parse_trial_result(data)) == data, path


def test_what_counts_of_a_result_is_what_the_reader_of_jobs_counts() -> None:
    for path in WRITTEN:
        if "nan" in path.parent.parent.name:  # their number is lost in the file
            continue
        found = load_trial(str(path.parent), DEFAULT_PROFILE).trial
        assert counted(parse_trial_result(path.read_bytes())) == found, path


@pytest.fixture
def result() -> TrialResult:
    return parse_trial_result(WRITTEN[0].read_bytes())


def test_rewards_that_json_cannot_hold_are_written_as_null(result: TrialResult) -> None:
    result.verifier_result = VerifierResult(rewards={"a": math.nan, "b": math.inf, "c": 1})
    again = parse_trial_result(render_trial_result(result)).verifier_result
    assert again is not None
    assert again.rewards is not None
    assert math.isnan(again.rewards["a"])
    assert math.isnan(again.rewards["b"])
    assert again.rewards["c"] == 1
    verdict = counted(result).verdict
    assert verdict is not None
    assert verdict.rewards is not None
    assert verdict.rewards["b"] == math.inf


def test_what_an_agent_says_that_cannot_be_written_is_an_error(result: TrialResult) -> None:
    result.agent_result = AgentContext(metadata={"thing": object()})
    with pytest.raises(PydanticSerializationError):
        render_trial_result(result)


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"path": "a/b"}, LocalTaskId(path="a/b")),
        (
            {"path": "a", "git_url": "https://x", "git_commit_id": "c"},
            GitTaskId(git_url="https://x", git_commit_id="c", path="a"),
        ),
        ({"name": "org/a", "ref": "2"}, PackageTaskId(org="org", name="a", ref="2")),
    ],
)
def test_a_task_is_named_by_where_it_is_from(told: dict[str, str], found: object) -> None:
    config = TrialConfig(task=TaskConfig.model_validate(told), trial_name="t", trials_dir=Path("j"))
    assert task_id_of(config) == found
