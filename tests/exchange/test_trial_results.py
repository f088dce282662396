"""Outputs and rewards of a harbor trial."""

from pathlib import Path

import pytest

from tests.exchange.trials import copy_trial, make


def write_reward(trial: Path, text: str, name: str = "reward.json") -> None:
    for path in (trial / "verifier").glob("reward.*"):
        path.unlink()
    (trial / "verifier" / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "reward", "breakdown"),
    [
        ('{"reward": 0.25, "speed": 3}', 0.25, {"reward": 0.25, "speed": 3}),
        ('{"speed": 3}', 3.0, {"speed": 3}),
        ('{"speed": 3, "size": 1.0}', None, {"speed": 3, "size": 1.0}),
        ('{"reward": 7}', 7.0, {"reward": 7}),
        ('{"reward": -0.5}', -0.5, {"reward": -0.5}),
        ('{"reward": NaN, "b": -Infinity}', None, {"reward": "nan", "b": "-inf"}),
        (f'{{"reward": 1{"0" * 400}}}', None, {"reward": f"1{'0' * 400}"}),
    ],
)
def test_the_reward_is_finite_or_null(
    tmp_path: Path, text: str, reward: float | None, breakdown: dict[str, object]
) -> None:
    trial = copy_trial(tmp_path)
    write_reward(trial, text)
    made = make(trial)
    assert made.record.evaluation.reward == reward
    assert made.record.evaluation.breakdown == breakdown


def test_a_trial_without_a_reward_is_not_scored(tmp_path: Path) -> None:
    trial = copy_trial(tmp_path, "05-rewards-oracle-k1", "missing-reward")
    evaluation = make(trial).record.evaluation
    assert (evaluation.reward, evaluation.breakdown) == (None, None)
    assert not evaluation.validity.verifier_completed
    assert evaluation.validity.errors[0].startswith("RewardFileNotFoundError: ")
    assert evaluation.error_taxonomy is not None
    assert evaluation.error_taxonomy[0].source == "mechanical"


@pytest.mark.parametrize(
    ("job", "task", "status"),
    [
        ("16-agent-nonzero", "pass-two", "failed"),
        ("17-agent-hang", "pass-two", "partial"),
        ("30-cancelled-before-resume", "slow-0", "completed"),
        ("01-binary-oracle-k1", "oracle-wrong", "completed"),
    ],
)
def test_how_the_agent_ended(tmp_path: Path, job: str, task: str, status: str) -> None:
    output = make(copy_trial(tmp_path, job, task)).record.outputs.agent_output
    assert output is not None
    assert output.status == status
    assert (output.error_message is None) == (status == "completed")
