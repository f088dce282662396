"""pass@k of a group, and why it has none."""

import pytest

from proctor.cli.tables import render_passes
from proctor.harbor.stats import Group
from proctor.reward.metric import RewardColumn
from proctor.reward.passk import pass_at_k

NONE = ("pass@k", "none: pass@k requires one reward of 0 or 1 from each trial")


@pytest.mark.parametrize(
    ("tasks", "rewards", "lines"),
    [
        (["a", "a"], [{"reward": 1}, {"reward": 0.0}], [("pass@2", "1")]),
        (["a", "a"], [{"reward": 0.5}, {"reward": 1}], [NONE]),
        (["a", "a"], [{"one": 1, "two": 1}, {"one": 1}], [NONE]),
        (["a", "b"], [{"reward": 0.5}, {"reward": 1}], []),
        (["a", "a"], [None, None], [("pass@2", "0")]),
    ],
)
def test_a_group_without_pass_at_k_says_why(
    tasks: list[str], rewards: list[dict[str, float] | None], lines: list[tuple[str, str]]
) -> None:
    group = Group("key")
    group.tasks, group.column = tasks, RewardColumn(rewards)
    assert list(render_passes(group, pass_at_k(group.tasks, group.column))) == lines
